"""Another estimator's advantages, clamped to bounds and scaled.

Source: the released code of AWM, Xue et al. 2025, arXiv:2509.25050: standardised advantages are clamped to +-5, divided
by 5 and multiplied by the largest wanted, 1. No rare sample can then move the flow far.
"""

from typing import Literal

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import Signal
from posttrain.types import Batch, Credit


@frozen
class Bounded(Advantage):
    """Clamps advantages, then scales them."""

    of: Advantage
    """The estimator."""
    clamp: PositiveFloat = 5.0
    """Bound of the absolute value of the estimator's advantages."""
    largest: PositiveFloat = 1.0
    """Advantage that the bound is scaled to."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator."""
        return self.of.needs

    @property
    def is_relative(self) -> bool:
        """That of the inner advantage."""
        return self.of.is_relative

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.of.reads

    def start(self) -> State:
        """State of the estimator."""
        return self.of.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Return the estimator's credit with clamped and scaled advantages."""
        state, credit = self.of(state, batch)
        advantages = tuple((a_T.clip(-self.clamp, self.clamp) * (self.largest / self.clamp)).astype(a_T.dtype)
                     for a_T in credit.advantages)  # fmt: skip
        return state, Credit(advantages=advantages, value_targets=credit.value_targets, metrics=credit.metrics)
