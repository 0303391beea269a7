"""Noise: an annotator who errs by chance, at a rate that is the same for all, or more often where the choice is close.

With `spread` s and logistic noise an annotator prefers the first of two texts with the probability sigmoid(d / s), d
being the difference in quality: the model of Bradley and Terry, with a scale of 1 / s.

Source: Bradley and Terry 1952, doi:10.2307/2334029; normal noise is the model of Thurstone, doi:10.1037/h0070288.
"""

import math
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Shown


@frozen
class Noise(Annotator):
    """Errs by chance."""

    rate: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    """Probability that a label is the opposite of the opinion."""
    spread: Annotated[float, Field(ge=0.0, le=1e6)] = 1.0
    """Scale of the noise that is added to the opinion, in units of quality: s of the logistic distribution, or the
    standard deviation of the normal one."""
    shape: Literal["logistic", "normal"] = "logistic"
    """Distribution of that noise."""

    def opinion(self, true: float, shown: Shown, rng: Random) -> float | None:
        """The opinion with noise, and then reversed at the rate."""
        if self.spread and self.shape == "normal":
            true = true + rng.gauss(0.0, self.spread)
        elif self.spread:
            share = min(max(rng.random(), 1e-12), 1 - 1e-12)
            true = true + self.spread * math.log(share / (1 - share))
        if self.rate and rng.random() < self.rate:
            return 2 * shown.middle - true
        return true
