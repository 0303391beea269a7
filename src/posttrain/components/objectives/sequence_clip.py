"""GSPO: PPO's clipped objective with one ratio for a whole sequence, the geometric mean of its tokens' ratios.

Source: Zheng et al. 2025, arXiv:2507.18071, equations 5 and 7: with s = (pi(y) / pi_old(y))^(1 / |y|), the loss of each
token is -min(s A, clip(s, 1 - low, 1 + high) A). With `reducers/sequences` their mean is the paper's objective.

With ``ratio=product`` the ratio is the product of its tokens' ratios, that of the whole text: the variant per
trajectory of LOOP, arXiv:2502.01600, and that per action of MARFT, arXiv:2504.16129.

Differs: the log of s is held within +-20, so that loss and gradient stay finite. Tokens of one sequence may have
different advantages; the paper's have one.
"""

from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

MAX_LOG_RATIO = 20.0

Bound = Annotated[float, Field(gt=0.0, lt=1.0)]


@frozen
class SequenceClip(Objective):
    """Clipped surrogate, sequence by sequence."""

    clip_low: Bound = 3e-4
    """A ratio below 1 - clip_low has no gradient from a negative advantage (3e-4: section 5.1)."""
    clip_high: Bound = 4e-4
    """A ratio above 1 + clip_high has no gradient from a positive advantage (4e-4: section 5.1)."""
    ratio: Literal["mean", "product"] = "mean"
    """The ratio of a sequence: the geometric ``mean`` of its tokens' ratios, or their ``product``."""

    @property
    def exceptions(self) -> frozenset[str]:
        """The gradient of a product is that of the sum of its tokens, not of their mean."""
        return frozenset({"reinforce"}) if self.ratio == "product" else frozenset()

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are its sequence's ratio and the share of tokens that were clipped."""
        log_ratio_T, advantage_T = tokens.logp_T - tokens.old_logp_T, tokens.advantage_T
        sum_N = log_ratio_T.new_zeros(len(tokens.length_N)).index_add(0, tokens.sequence_T, log_ratio_T)
        own_N = sum_N / tokens.length_N.clamp(min=1) if self.ratio == "mean" else sum_N
        ratio_T = own_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()[tokens.sequence_T]
        free_T = -advantage_T * ratio_T
        clipped_T = -advantage_T * ratio_T.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        stopped_T = (clipped_T > free_T).to(ratio_T.dtype)
        return PerToken(
            loss_T=free_T.maximum(clipped_T), metrics={"ratio": ratio_T.detach(), "clip_fraction": stopped_T}
        )
