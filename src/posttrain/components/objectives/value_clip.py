"""The critic's loss: half the squared error of a value, clipped around the value at the start of the step.

Source: the value loss of PPO's first implementation (Dhariwal et al. 2017, openai/baselines, ppo2), used for language
models by Luong et al. 2024 (ReFT), arXiv:2401.08967: 0.5 max((v - R)^2, (old + clip(v - old, -clip, clip) - R)^2), with
v the value of the state before a token, old the one at the start of the step, and R the target of the advantage
estimator. It does not use the policy's log-probabilities.
"""

from typing import ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.signals import OLD_VALUE, VALUE, Signal
from posttrain.types import PerToken, Tokens


@frozen
class ValueClip(Objective):
    """Clipped squared error of a critic's values."""

    needs: ClassVar[frozenset[Signal]] = frozenset({VALUE, OLD_VALUE})
    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})

    clip: PositiveFloat | None = 0.2
    """Clip range around the value at the start of the step, in units of reward; None is the plain squared error.
    """

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token, 0 without a target; the metric is the share of tokens that clipping stopped."""
        value_T, old_value_T, target_T = tokens[VALUE], tokens[OLD_VALUE], tokens.value_target_T
        assert target_T is not None, "a critic's batch has targets"
        target_T = value_T.detach().where(target_T.isnan(), target_T)
        free_T = 0.5 * (value_T - target_T) ** 2
        if self.clip is None:
            return PerToken(loss_T=free_T)
        held_T = old_value_T + (value_T - old_value_T).clamp(-self.clip, self.clip)
        clipped_T = 0.5 * (held_T - target_T) ** 2
        stopped_T = (clipped_T > free_T).to(free_T.dtype)
        return PerToken(loss_T=free_T.maximum(clipped_T), metrics={"value_clip_fraction": stopped_T})
