"""Another estimator's advantages, clamped to bounds and scaled.

Source: the released code of AWM, Xue et al. 2025, arXiv:2509.25050: standardised advantages are clamped to +-5, divided
by 5 and multiplied by the largest wanted, 1. No rare sample can then move the flow far.
"""

from dataclasses import replace
from typing import ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.types import Batch, Credit


@frozen
class Bounded(Advantage):
    """Clamps advantages, then scales them."""

    RENAMED: ClassVar = {"of": "advantage"}

    advantage: Advantage
    """The estimator."""
    clamp: PositiveFloat = 5.0
    """Bound of the absolute value of the estimator's advantages."""
    largest: PositiveFloat = 1.0
    """Advantage that the bound is scaled to."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Return the estimator's credit with clamped and scaled advantages."""
        inner, credit = self.advantage(state["inner"], batch)
        factor = self.largest / self.clamp
        clamped = ((a_T.clip(-self.clamp, self.clamp) * factor).astype(a_T.dtype) for a_T in credit.advantages)
        return {"inner": inner}, replace(credit, advantages=tuple(clamped))
