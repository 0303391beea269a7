"""SimPO: the reward is the mean log-probability of a completion's tokens, with a target margin and no reference.

Source: Meng et al. 2024, arXiv:2405.14734, equation 6, and its released code, from which the label smoothing is. With m
the mean log-probability of a completion's tokens and e the label smoothing:

    margin = beta m(chosen) - beta m(rejected) - gamma
    loss = -(1 - e) log sigmoid(margin) - e log sigmoid(-margin)

The code gives gamma / beta as its setting; gamma is the paper's. With gamma 0 and completions of one token it is DPO
without a reference.

Differs: nothing known. The code's other options, a hinge and an added SFT loss, are not here: `rpo` adds the latter to
any loss.
"""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss

Rate = Annotated[float, Field(ge=0.0, lt=0.5)]


@frozen
class SimPO(PreferenceLoss):
    """Simple preference optimization."""

    beta: PositiveFloat = 2.0
    """Reward per nat a token (2.0 to 2.5 in the paper; 10 for its largest model)."""
    gamma: NonNegativeFloat = 1.0
    """Margin by which the chosen completion's reward is to be higher (0.3 to 1.6 in the paper)."""
    label_smoothing: Rate = 0.0
    """Share of pairs that are assumed to have swapped labels."""

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        from torch.nn.functional import logsigmoid

        mean_P2 = pairs.logp_P2 / pairs.length_P2.clamp(min=1)
        reward_P2 = self.beta * mean_P2
        margin_P = reward_P2[:, 0] - reward_P2[:, 1]
        loss_P = -logsigmoid(margin_P - self.gamma)
        if self.label_smoothing:
            swapped_P = logsigmoid(self.gamma - margin_P)
            loss_P = (1 - self.label_smoothing) * loss_P - self.label_smoothing * swapped_P
        metrics = {
            "pair_accuracy": (margin_P > 0).to(margin_P.dtype),
            "pair_margin": margin_P,
            "chosen_reward": reward_P2[:, 0],
            "rejected_reward": reward_P2[:, 1],
            "chosen_logp": pairs.logp_P2[:, 0],
            "rejected_logp": pairs.logp_P2[:, 1],
        }
        return PerPair(loss_P=loss_P, metrics={name: values.detach() for name, values in metrics.items()})
