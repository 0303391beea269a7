"""Taste: an annotator to whom traits matter more, or less, than to the data.

Source: users with weights of their own on traits of a text, as in VPL, arXiv:2408.10075, in small.
"""

from collections.abc import Mapping
from random import Random
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown
from posttrain.errors import UserError


@frozen
class Taste(Annotator):
    """Adds its own weights of traits."""

    weights: Annotated[
        Mapping[str, Annotated[float, Field(ge=-1e6, le=1e6)]], Field(default_factory=lambda: {"polite": -2.0})
    ]
    """By trait, what one more of it adds to the quality of a text."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion with the traits of both texts by its own weights. Raises `UserError` for an unknown trait."""
        if len(shown.texts) != 2:
            return true
        unknown = sorted(self.weights.keys() - shown.traits.keys())
        if unknown:
            known = ", ".join(shown.traits) or "none"
            raise UserError(
                f"an annotator has a taste for '{unknown[0]}', which these pairs do not count (their traits: {known}); "
                "name one of these, or give pairs a column aspects with its numbers"
            )
        return true + sum(w * (shown.traits[name][0] - shown.traits[name][1]) for name, w in self.weights.items())
