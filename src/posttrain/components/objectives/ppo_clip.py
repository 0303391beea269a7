"""PPO: advantage times probability ratio, with no further gain beyond a clipped ratio.

Source: Schulman et al. 2017, arXiv:1707.06347, equation 7: the loss is -min(r A, clip(r, 1 - low, 1 + high) A), where
r is the token's probability under the weights being trained over that at the start of the step. Separate bounds: Yu et
al. 2025 (DAPO), arXiv:2503.14476, section 3.1. Dual clip: Ye et al. 2019, arXiv:1912.09729: where A is negative, the
objective is never below c A.

Differs: the log-ratio is held within +-20 (a ratio of 5e8), so that loss and gradient stay finite.
"""

from typing import Annotated

from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

MAX_LOG_RATIO = 20.0


@frozen
class PPOClip(Objective):
    """Clipped surrogate, token by token."""

    clip_low: PositiveFloat = 0.2
    """A ratio below 1 - clip_low has no gradient from a negative advantage (0.2: section 6.1 of the PPO paper)."""
    clip_high: PositiveFloat = 0.2
    """A ratio above 1 + clip_high has no gradient from a positive advantage (DAPO uses 0.28)."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """c: with a negative advantage, a ratio above c has no gradient (the paper uses 3); None is plain PPO."""

    bound: PositiveFloat | None = None
    """Log-probabilities are held within plus and minus this before the ratio is taken: beyond, a token has no gradient,
    and where both are beyond on one side the ratio 1 (1 in ReinFlow's release, whose log-probabilities are means over
    drawn numbers); None does not hold them."""

    @property
    def exceptions(self) -> frozenset[str]:
        """With a bound, tokens beyond it have no gradient."""
        return frozenset({"reinforce", "bandit"}) if self.bound is not None else frozenset()

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the ratio and the shares of tokens that clipping stopped."""
        advantage_T = tokens.advantage_T
        logp_T, old_logp_T = tokens.logp_T, tokens.old_logp_T
        if self.bound is not None:
            logp_T, old_logp_T = (x_T.clamp(-self.bound, self.bound) for x_T in (logp_T, old_logp_T))
        ratio_T = (logp_T - old_logp_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        free_T = -advantage_T * ratio_T
        clipped_T = -advantage_T * ratio_T.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        loss_T = free_T.maximum(clipped_T)
        metrics = {"ratio": ratio_T.detach(), "clip_fraction": (clipped_T > free_T).to(ratio_T.dtype)}
        if self.dual_clip is not None:
            most_T = -self.dual_clip * advantage_T
            stopped_T = (advantage_T < 0) & (loss_T > most_T)
            loss_T = most_T.where(stopped_T, loss_T)
            metrics["dual_clip_fraction"] = stopped_T.to(ratio_T.dtype)
        return PerToken(loss_T=loss_T, metrics=metrics)
