"""A score of a picture in one of four aspects, or their mean, by code: it stands in for a judge that sees.

A picture is its 256 pixels as text (`datasets/pictures`), and the prompt the requested shade. Errors are those of a
judge: noise that is a function of the picture and the aspect, and a preference for the picture that is shown first. A
score is from 1 to 5. All four aspects without errors are in the record as parts, by name.

Source: the aspects are those of VisionPrefer, arXiv:2404.15100; the rules are of this package.
"""

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.datasets.pictures import ASPECTS, HIGH, LOW, read, scores_of
from posttrain.datasets.templates import question_of
from posttrain.types import Group, Score, Trajectory


@frozen
class Picture(Reward):
    """Scores pictures by code."""

    aspect: Literal["following", "aesthetics", "fidelity", "harmlessness", "mean"] = "mean"
    """Which aspect."""
    noise: NonNegativeFloat = 0.0
    """Standard deviation of the judge's noise."""
    first: NonNegativeFloat = 0.0
    """What the first picture of a group gets in addition."""
    correct_at: float = 4.0
    """Smallest value that counts as correct."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every picture of the group, in the order in which it is shown."""
        return [self._score(trajectory, place) for place, trajectory in enumerate(group)]

    def _score(self, trajectory: Trajectory, place: int) -> Score:
        pixels = read(trajectory.completion)
        try:
            shade = float(question_of(trajectory.task))
        except ValueError:
            shade = 0.0
        if pixels is None:
            return Score(value=LOW, status="wrong", explanation="the completion is no picture")
        scores = scores_of(pixels, shade)
        value = sum(scores.values()) / len(ASPECTS) if self.aspect == "mean" else scores[self.aspect]
        if self.noise:
            value += Random(f"picture:{self.aspect}:{trajectory.completion}").gauss(0.0, self.noise)
        value = min(max(value + self.first * (place == 0), LOW), HIGH)
        shown = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
        parts = {name: Score(value=score, status="ok") for name, score in scores.items()}
        return Score(value=value, status="ok" if value >= self.correct_at else "wrong", explanation=shown, parts=parts)
