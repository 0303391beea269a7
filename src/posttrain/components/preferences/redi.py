"""REDI: raises the likelihood of the chosen completion and lowers the rejected one's, per token, without a reference.

Source: Xu et al. 2025, arXiv:2505.24850, equations 4 and 5. With m the mean log-probability of a completion's tokens,

    loss = -positive m(chosen) + alpha m(rejected)

so that alpha = 0 imitates the chosen completions, and alpha = 1 is SimPO without its sigmoid: both completions of a
pair then have the same weight. Nothing is clipped: the second term falls without bound as the rejected completion
becomes unlikely, and lowers the chosen one too where they share tokens, which `chosen_mean_logp` shows. Alpha below 1,
a small learning rate and a single epoch limit it. As the loss has no minimum, a completion that is chosen in some pairs
and rejected in others follows its net weight, however good the others are. `decay` is an option of the released code
that is off there too.

Differs: nothing known.
"""

from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class REDI(PreferenceLoss):
    """Reinforcement distillation: likelihood with signed weights."""

    RENAMED: ClassVar = {"fade": "decay"}

    exceptions: ClassVar[frozenset[str]] = frozenset({"bandit"})

    alpha: Share = 0.8
    """Weight of the rejected completions, in [0, 1] (0.8: the released configuration)."""
    positive: NonNegativeFloat = 1.0
    """Weight of the chosen completions."""
    decay: NonNegativeFloat = 0.0
    """g: the second term is multiplied by exp(g m(rejected)), which is differentiated too: it decays as the
    completion becomes unlikely, and below m = -1 / g it raises the completion again. 0 is plain REDI."""

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        mean_P2 = pairs.logp_P2 / pairs.length_P2.clamp(min=1)
        chosen_P, rejected_P = mean_P2[:, 0], mean_P2[:, 1]
        lowered_P = self.alpha * rejected_P
        if self.decay:
            lowered_P = lowered_P * (self.decay * rejected_P).exp()
        margin_P = chosen_P - rejected_P
        seen = {
            "pair_accuracy": (margin_P > 0).to(margin_P.dtype),
            "pair_margin": margin_P,
            "chosen_logp": pairs.logp_P2[:, 0],
            "rejected_logp": pairs.logp_P2[:, 1],
            "chosen_mean_logp": chosen_P,
            "rejected_mean_logp": rejected_P,
        }
        metrics = {name: values.detach() for name, values in seen.items()}
        return PerPair(loss_P=lowered_P - self.positive * chosen_P, metrics=metrics)
