"""The logistic loss of pairs by rewards, with a target margin and label smoothing: what DPO and SimPO share."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from posttrain.components.preferences import Pairs, PerPair

if TYPE_CHECKING:
    import torch

Rate = Annotated[float, Field(ge=0.0, lt=0.5)]
"""A share of pairs with swapped labels."""


def logistic(
    pairs: Pairs, reward_P2: "torch.Tensor", *, smoothing: float, target: "float | torch.Tensor" = 0.0
) -> PerPair:
    """The loss of each pair, by the rewards of its completions. The metrics have the margin without the target, which
    is one number, or one for each pair ([P]).
    """
    from torch.nn.functional import logsigmoid

    margin_P = reward_P2[:, 0] - reward_P2[:, 1]
    loss_P = -logsigmoid(margin_P - target)
    if smoothing:
        loss_P = (1 - smoothing) * loss_P - smoothing * logsigmoid(target - margin_P)
    metrics = {
        "pair_accuracy": (margin_P > 0).to(margin_P.dtype),
        "pair_margin": margin_P,
        "chosen_reward": reward_P2[:, 0],
        "rejected_reward": reward_P2[:, 1],
        "chosen_logp": pairs.logp_P2[:, 0],
        "rejected_logp": pairs.logp_P2[:, 1],
    }
    return PerPair(loss_P=loss_P, metrics={name: values.detach() for name, values in metrics.items()})
