"""TOPR: off-policy REINFORCE with a truncated importance ratio for negative samples and none for positive ones.

Source: Le Roux et al. 2025 (TOPR), arXiv:2503.14286, equations 7 and 8. Where mu sampled the response y, the loss is

    -w A log pi(y),    w = clip(pi(y) / mu(y), low, high), not differentiated

with bounds of their own where A > 0 and where A < 0. The ratio is that of the whole response. It is the gradient of
-A T(pi / mu) for a taper T that is the ratio itself between the bounds and logarithmic beyond them:
high (1 + log(ratio / high)) above, low (1 + log(ratio / low)) below, constant there for low = 0. So with a lower bound
of 0 the loss of a negative sample is bounded, and its gradient vanishes once it is unlikely under the policy. Plain
REINFORCE (bounds 1 and 1) changes its logits without bound.

Bounds [1, 1] and [0, 1] are the paper's; [1, 1] and [0, 0] learn from positives only; [0, 1] and [0, 1] is a truncated
importance weight. A sample with A = 0 has no gradient.

Differs: the log-ratio is held below 20, so that a high bound beyond that is 20's. A response that was not sampled
counts as one of the policy at the start of the step. ``ratio="token"`` weighs each token by its own ratio, as in the
framework ROLL.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

LARGEST_LOG_RATIO = 20.0


def _in_order(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"the lower bound comes first: [{bounds[1]:g}, {bounds[0]:g}]")
    return bounds


Bounds = Annotated[tuple[NonNegativeFloat, NonNegativeFloat], AfterValidator(_in_order)]


@frozen
class Tapered(Objective):
    """Minus advantage times log-probability, times a clipped ratio by the sign of the advantage."""

    positive: Bounds = (1.0, 1.0)
    """Lower and upper bound of the ratio (a+, b+) where the advantage is positive."""
    negative: Bounds = (0.0, 1.0)
    """Lower and upper bound (a-, b-) where it is negative. A lower bound above 0 keeps a gradient on all of them."""
    ratio: Literal["sequence", "token"] = "sequence"
    """Whose ratio: that of all trained tokens of the response together, or of each token."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; the metrics are the mean weight of positive and of negative samples' tokens."""
        behavior_logp_T = tokens.behavior_logp_T.where(~tokens.demonstrated_T, tokens.old_logp_T)
        log_ratio_T = tokens.logp_T.detach() - behavior_logp_T
        if self.ratio == "sequence":
            log_ratio_T = tokens.sequence_sum(log_ratio_T)[tokens.sequence_T]
        ratio_T = log_ratio_T.clamp(max=LARGEST_LOG_RATIO).exp()
        is_positive_T = tokens.advantage_T > 0
        weight_T = ratio_T.clamp(*self.positive).where(is_positive_T, ratio_T.clamp(*self.negative))
        return PerToken(
            loss_T=-weight_T * tokens.advantage_T * tokens.logp_T,
            metrics={
                "weight/positive": weight_T[is_positive_T],
                "weight/negative": weight_T[tokens.advantage_T < 0],
            },
        )
