"""Quantile: bounds that follow a quantile of the norms of gradients.

Source: Andrew, Thakkar, McMahan and Ramaswamy 2021, arXiv:1905.03871: C <- C exp(-rate (b - quantile)), where b is the
released share of records whose gradient has a norm of at most C. The noise multiplier stays.
"""

import math
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.controllers import Controller, Knobs, Measured, State


@frozen
class Quantile(Controller):
    """Adaptive clipping."""

    quantile: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of records that are not clipped, which bounds aim for."""
    rate: PositiveFloat = 0.5
    """Change of the logarithm of a bound by interval, per unit of the share's error."""
    every: PositiveInt = 5
    """Steps of an interval."""

    def start(self, first: Knobs, seed: int) -> State:
        """The bounds of the recipe."""
        return {"scales": [0.0] * len(first.clips)}

    def knobs(self, state: State, first: Knobs) -> Knobs:
        """The bounds by their present logarithms."""
        clips = [clip * math.exp(scale) for clip, scale in zip(first.clips, state["scales"], strict=True)]
        return Knobs(clips=clips, noise=first.noise)

    def observe(self, state: State, measured: Measured) -> State:
        """Lower the bounds of groups in which too many records are not clipped."""
        pairs = zip(state["scales"], measured.within, strict=True)
        return {"scales": [scale - self.rate * (within - self.quantile) for scale, within in pairs]}
