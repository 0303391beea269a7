"""PPO's clip around the ratio that a token had at the start of the step, for rollouts of earlier policies.

Source: the mix-policy loss of ReMix, arXiv:2507.06892, after GePPO (Queeney et al. 2021, arXiv:2111.00072): with r the
token's probability under the weights being trained over that of its sampling, and c its probability at the start of
the step over that of its sampling, the loss is -min(r A, clip(r, c - low, c + high) A). A token of an earlier policy
whose probability has not changed in this step has r = c, and is not clipped, however far r is from 1. For a rollout of
this step c is 1, and the loss is PPO's.

Differs: log-ratios are held within +-20, so that loss and gradient stay finite. Tokens that were not sampled
(demonstrations) have the probability at the start of the step in place of that of their sampling.
"""

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

MAX_LOG_RATIO = 20.0


@frozen
class ShiftedClip(Objective):
    """Clipped surrogate whose bounds move with the ratio at the start of the step."""

    clip_low: PositiveFloat = 0.2
    """A ratio below c - clip_low has no gradient from a negative advantage; no bound acts where that is below 0."""
    clip_high: PositiveFloat = 0.2
    """A ratio above c + clip_high has no gradient from a positive advantage."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the ratio, c, and the share of tokens that clipping stopped."""
        advantage_T, old_T = tokens.advantage_T, tokens.old_logp_T
        sampled_T = old_T.where(tokens.demonstrated_T, tokens.behavior_logp_T)
        ratio_T = (tokens.logp_T - sampled_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        center_T = (old_T - sampled_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        shift_T = center_T - 1.0
        clipped_T = (ratio_T - shift_T).clamp(1.0 - self.clip_low, 1.0 + self.clip_high) + shift_T
        free_T, bounded_T = -advantage_T * ratio_T, -advantage_T * clipped_T
        metrics = {
            "ratio": ratio_T.detach(),
            "clip_center": center_T,
            "log_ratio_size": (old_T - sampled_T).abs(),
            "clip_fraction": (bounded_T > free_T).to(ratio_T.dtype),
        }
        return PerToken(loss_T=free_T.maximum(bounded_T), metrics=metrics)
