"""A logarithmic barrier on the scores of a reward model, which keeps them within bounds.

Source: Cai et al. 2024 (InternLM2), arXiv:2403.17297, section 4.3.1, for scores within (-5, 5); an option of the
trainer of POLAR, arXiv:2507.05197, with the weight 0.01. For the score s of a completion, at its last token:

    coefficient (-log(bound - s) - log(bound + s))

Only differences of scores are learned from pairs, so that their level drifts and those of different models do not
compare. The barrier is smallest at 0.

Differs: a score outside the bounds has no logarithm. Beyond `edge` of the bound the barrier goes on as its tangent, so
that a score that is already outside returns, and the loss is finite.
"""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import SCORE, Signal
from posttrain.types import PerToken, Tokens


@frozen
class ScoreBarrier(Penalty):
    """A barrier at a lower and an upper bound of the scores."""

    coefficient: NonNegativeFloat = 0.01
    """Weight (0.01 in POLAR's trainer)."""
    bound: PositiveFloat = 5.0
    """Scores are kept between minus this and this (5 in InternLM2)."""
    edge: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99
    """Share of the bound from which on the barrier is its tangent."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The score of the model that learns."""
        return frozenset({SCORE})

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] the barrier of each sequence; the metric is the share of scores beyond the edge."""
        score_N = tokens.last(tokens[SCORE])
        last = self.edge * self.bound
        inside_N = score_N.clamp(-last, last)
        barrier_N = -(self.bound - inside_N).log() - (self.bound + inside_N).log()
        slope = 1.0 / (self.bound - last) - 1.0 / (self.bound + last)
        loss_N = self.coefficient * (barrier_N + slope * (score_N - inside_N).abs())
        beyond_N = (score_N.detach().abs() > last).to(score_N.dtype)
        return PerToken(loss_T=loss_N[tokens.sequence_T], metrics={"beyond": beyond_N})
