"""GPPO: the value of clipped PPO, but a token beyond the clip range keeps a bounded gradient in place of none.

Source: Su et al. 2025 (Klear-Reasoner), arXiv:2508.07629: the loss is that of PPO,

    -min(r A, clip(r, 1 - low, 1 + high) A),

and its gradient with respect to log p is -A times the ratio r where PPO has a gradient, times 1 + high where r is above
that and A > 0, and times 1 - low where r is below that and A < 0. The weights of these two cases (`beta_high`,
`beta_low`) are from the released code; with both 0 it is PPO. Dual clip: Ye et al. 2019, arXiv:1912.09729.

Differs: r is held within e^-20 and e^20, the gradient is not cut there.
"""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

MAX_LOG_RATIO = 20.0


@frozen
class GPPO(Objective):
    """Clipped surrogate whose clipped tokens keep a gradient."""

    clip_low: PositiveFloat = 0.2
    """A ratio below 1 - clip_low counts as that where the advantage is negative (0.2 in the paper)."""
    clip_high: PositiveFloat = 0.28
    """A ratio above 1 + clip_high counts as that where the advantage is positive (0.28 in the paper)."""
    beta_low: NonNegativeFloat = 1.0
    """Weight of the gradient below the range: 1 in the paper, 0 is PPO's. The authors later took 0.25 or 0.5, since 1
    lowered the entropy of other models."""
    beta_high: NonNegativeFloat = 1.0
    """Weight of the gradient above the range (1 in the paper, 0 is PPO's)."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """c: with a negative advantage, a ratio above c has no gradient (10 in the released runs); None, as in the paper's
    formula, stops no token."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the ratio, and the shares of tokens out of range and stopped."""
        advantage_T, logp_T = tokens.advantage_T, tokens.logp_T
        ratio_T = (logp_T.detach() - tokens.old_logp_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        held_T = ratio_T.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        above_T = (ratio_T > held_T) & (advantage_T > 0)
        below_T = (ratio_T < held_T) & (advantage_T < 0)
        value_T = -advantage_T * held_T.where(above_T | below_T, ratio_T)
        slope_T = (self.beta_high * held_T).where(above_T, (self.beta_low * held_T).where(below_T, ratio_T))
        metrics = {"ratio": ratio_T, "clip_fraction": (above_T | below_T).to(ratio_T.dtype)}
        if self.dual_clip is not None:
            most_T = -self.dual_clip * advantage_T
            stopped_T = (advantage_T < 0) & (value_T > most_T)
            value_T = most_T.where(stopped_T, value_T)
            slope_T = slope_T.masked_fill(stopped_T, 0.0)
            metrics["dual_clip_fraction"] = stopped_T.to(ratio_T.dtype)
        # Value and gradient differ here: the last factor is 0, and its gradient 1.
        return PerToken(loss_T=value_T - advantage_T * slope_T * (logp_T - logp_T.detach()), metrics=metrics)
