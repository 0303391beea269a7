r"""Replies of users with opposite tastes: half of them like the one word, the others the other one.

A reply has three words, each "sun" or "rain". Of two replies with different numbers of "sun", a user of the first type
prefers the one with more, and a user of the second type the one with fewer, as `annotators` state it. A margin is the
difference. The prompt names the user, for the policy; the field ``request`` does not, for a reward model. The field
``criteria`` has a point for the word that the user likes and takes one off for the other, for the
reward `rubric`: right replies have the one word only.

    prompt "For kim qhb:"   user kim   chosen " sun sun rain"   rejected " rain sun rain"
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.datasets.annotating import Compared, preferences
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Preference, Task

USERS = ("kim", "ann", "bob", "eve")
"""The types alternate."""
WORDS = ("sun", "rain")
LENGTH = 3


@frozen
class Tastes(Tasks):
    """Pairs of replies by users of two types."""

    RENAMED: ClassVar = {"noise": "annotators=[{kind: noise, rate: ..., spread: 0}]"}

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which replies are drawn."""
    annotators: Annotators = ()
    """Who states which reply a user prefers; none states it rightly always. The difference in quality is the margin."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"tastes:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"replies by users of two types (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        user = rng.randrange(len(USERS))
        shown, one, other = (tuple(rng.randrange(2) for _ in range(LENGTH)) for _ in range(3))
        while sum(one) == sum(other):
            other = tuple(rng.randrange(2) for _ in range(LENGTH))
        rng.random()  # draws of a repeated item go on from here
        return name, user, shown, one, other

    def _task(self, drawn: tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> Task:
        name, user, shown, one, other = drawn
        liked = user % 2
        chosen, rejected = sorted((one, other), key=lambda reply: reply.count(liked), reverse=True)
        margin = abs(chosen.count(liked) - rejected.count(liked))
        pairs: tuple[Preference, ...] = (Preference(chosen=_text(chosen), rejected=_text(rejected)),)
        if self.annotators:
            compared = Compared(texts=(_text(chosen), _text(rejected)), gap=float(margin))
            pairs = preferences(compared, self.annotators, f"tastes:{self.seed}:{drawn}")
        criteria = [
            {"criterion": WORDS[word], "points": 1 if word == liked else -1, "words": [WORDS[word]]} for word in (0, 1)
        ]
        return Task(
            key="",
            prompt=f"For {USERS[user]} {name}:",
            domain=WORDS[liked],
            demonstrations=(_text(shown),),
            preferences=tuple(replace(pair, user=USERS[user]) for pair in pairs),
            fields={
                "user": USERS[user],
                "request": "Reply:",
                "margin": margin,
                "criteria": criteria,
            },
        )


def _text(reply: Sequence[int]) -> str:
    return "".join(f" {WORDS[word]}" for word in reply)
