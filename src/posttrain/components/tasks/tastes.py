r"""Replies of users with opposite tastes: half of them like the one word, the others the other one.

A reply has three words, each "sun" or "rain". Of two replies with different numbers of "sun", a user of the first type
prefers the one with more, and a user of the second type the one with fewer; `noise` exchanges them. A margin is the
difference. The prompt names the user, for the policy; the field ``request`` does not, for a reward model. The field
``criteria`` has a point for the word that the user likes and takes one off for the other, for the
reward `rubric`: right replies have the one word only.

    prompt "For kim qhb:"   user kim   chosen " sun sun rain"   rejected " rain sun rain"
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
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

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which replies are drawn."""
    noise: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    """Probability that a pair is exchanged."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"tastes:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"replies by users of two types (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        user = rng.randrange(len(USERS))
        shown, one, other = (tuple(rng.randrange(2) for _ in range(LENGTH)) for _ in range(3))
        while sum(one) == sum(other):
            other = tuple(rng.randrange(2) for _ in range(LENGTH))
        return name, user, shown, one, other, rng.random() < self.noise

    def _task(self, drawn: tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]) -> Task:
        name, user, shown, one, other, exchanged = drawn
        liked = user % 2
        chosen, rejected = sorted((one, other), key=lambda reply: reply.count(liked), reverse=True)
        if exchanged:
            chosen, rejected = rejected, chosen
        criteria = [
            {"criterion": WORDS[word], "points": 1 if word == liked else -1, "words": [WORDS[word]]} for word in (0, 1)
        ]
        return Task(
            key="",
            prompt=f"For {USERS[user]} {name}:",
            domain=WORDS[liked],
            demonstrations=(_text(shown),),
            preferences=(Preference(chosen=_text(chosen), rejected=_text(rejected), user=USERS[user]),),
            fields={
                "user": USERS[user],
                "request": "Reply:",
                "margin": abs(chosen.count(liked) - rejected.count(liked)),
                "criteria": criteria,
            },
        )


def _text(reply: Sequence[int]) -> str:
    return "".join(f" {WORDS[word]}" for word in reply)
