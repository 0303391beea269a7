r"""Replies to students, with labels of three dimensions, which are known by code.

A reply has up to two each of the words "hint", the student's name and "why", in a drawn order. The labels of
helpfulness, personalization and creativity are 2 where its word occurs once, 1 where it is repeated and 0 where it is
missing, so that more of a word is not better; they are given by `annotators`, who leave some out. Of several labels
the mean is taken. The field ``criteria`` has a word for each, for the reward `rubric`.

    prompt "Reply to kim (qhb):"   demonstration " why hint kim kim."   helpfulness 2, personalization 1, creativity 2
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.datasets.annotating import score
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

DIMENSIONS = ("helpfulness", "personalization", "creativity")
NAMES = ("kim", "ann", "bob", "eve", "sam")
LABELS = (0, 2, 1)
"""Of a word that occurs never, once and twice."""
STREAM: Final = 0.3
"""Part of the name of the annotators' draws."""


@frozen
class GradedReplies(Tasks):
    """Replies with labels of three dimensions."""

    RENAMED: ClassVar = {"missing": "annotators=[{kind: missing, rate: ...}]"}

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which replies are drawn."""
    annotators: Annotators = ()
    """Who gives the labels, on a scale from 0 to 2; none gives all of them rightly."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"graded_replies:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"replies with labels (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, str, tuple[int, ...], int]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        return name, rng.choice(NAMES), tuple(rng.randrange(len(LABELS)) for _ in DIMENSIONS), rng.randrange(1000)

    def _task(self, drawn: tuple[str, str, tuple[int, ...], int]) -> Task:
        name, student, counts, order = drawn
        words = ("hint", student, "why")
        reply = [word for word, count in zip(words, counts, strict=True) for _ in range(count)]
        Random(order).shuffle(reply)
        rng = Random(f"graded_replies:{self.seed}:{drawn}:{STREAM}")
        given = {d: score(LABELS[n], self.annotators, rng, middle=1.0) for d, n in zip(DIMENSIONS, counts, strict=True)}
        labels = {dimension: label for dimension, label in given.items() if label is not None}
        criteria: list[dict[str, Any]] = [
            {"criterion": dimension, "points": 1, "words": [word]}
            for dimension, word in zip(DIMENSIONS, words, strict=True)
        ]
        return Task(
            key="",
            prompt=f"Reply to {student} ({name}):",
            demonstrations=("".join(f" {word}" for word in reply) + ".",),
            fields={**labels, "criteria": criteria},
        )
