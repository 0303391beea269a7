"""The square of the scores of a reward model, which keeps them near 0.

Source: an option of the trainer of POLAR, arXiv:2507.05197. For the score s of a completion, at its last token:

    coefficient s^2

Only differences of scores are learned from pairs, so that their level drifts; the square pins its mean to 0 and
shrinks the differences. A penalty of the sum of a pair's two scores (Eisenstein et al. 2023, arXiv:2312.09244) would
leave the differences as they are.

Differs: nothing known.
"""

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import SCORE, Signal
from posttrain.types import PerToken, Tokens


@frozen
class ScoreSquare(Penalty):
    """A quadratic penalty of each score."""

    coefficient: NonNegativeFloat = 0.01
    """Weight."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The score of the model that learns."""
        return frozenset({SCORE})

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] the square of each sequence's score; the metric is the square without its weight."""
        square_N = tokens.last(tokens[SCORE]).square()
        return PerToken(loss_T=(self.coefficient * square_N)[tokens.sequence_T], metrics={"square": square_N.detach()})
