"""Another estimator's advantages, held within bounds and scaled.

Source: the released code of AWM, Xue et al. 2025, arXiv:2509.25050: standardised advantages are clamped to +-5, divided
by 5 and multiplied by the largest wanted, 1; so that a rare sample cannot drag the flow far off.
"""

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import Signal
from posttrain.types import Batch, Credit


@frozen
class Bounded(Advantage):
    """Clamp, then scale."""

    of: Advantage
    """The estimator."""
    clamp: PositiveFloat = 5.0
    """Largest size of the estimator's advantages that counts."""
    largest: PositiveFloat = 1.0
    """What an advantage of that size becomes."""

    @property
    def needs(self) -> frozenset[Signal]:
        """What the estimator needs."""
        return self.of.needs

    def start(self) -> State:
        """The estimator's memory."""
        return self.of.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """The estimator's credit, with other advantages."""
        state, credit = self.of(state, batch)
        held = tuple((a_T.clip(-self.clamp, self.clamp) * (self.largest / self.clamp)).astype(a_T.dtype)
                     for a_T in credit.advantages)  # fmt: skip
        return state, Credit(advantages=held, value_targets=credit.value_targets, metrics=credit.metrics)
