"""The loss of the model's own values: half the clipped squared error, for a policy that is its own critic.

Source: the value loss of ReFT, Luong et al. 2024, arXiv:2401.08967, and of CARFT, arXiv:2508.15868, whose policy has a
value head on its own states: 5 times 0.5 max((v - R)^2, (old + clip(v - old, -0.2, 0.2) - R)^2), added to the policy's
loss, with v the value of the state before a token and R the target of the advantage estimator.
"""

from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import OLD_VALUE, VALUE, Signal
from posttrain.types import PerToken, Tokens


@frozen
class Value(Penalty):
    """Clipped squared error of the policy's values."""

    needs: ClassVar[frozenset[Signal]] = frozenset({VALUE, OLD_VALUE})

    coefficient: NonNegativeFloat = 5.0
    """Weight beside the loss of the policy (5 in the papers)."""
    clip: PositiveFloat | None = 0.2
    """Clip range around the value at the start of the step, in units of reward; None is the plain squared error."""

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] the term, 0 without a target; the metric is the error before its clipping."""
        value_T, old_T, target_T = tokens[VALUE], tokens[OLD_VALUE], tokens.value_target_T
        assert target_T is not None, "an advantage with values gives targets"
        target_T = value_T.detach().where(target_T.isnan(), target_T)
        error_T = (value_T - target_T) ** 2
        free_T = error_T
        if self.clip is not None:
            error_T = error_T.maximum((old_T + (value_T - old_T).clamp(-self.clip, self.clip) - target_T) ** 2)
        return PerToken(loss_T=self.coefficient * 0.5 * error_T, metrics={"error": free_T.detach()})
