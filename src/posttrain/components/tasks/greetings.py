r"""Greetings for two occasions with up to three of eight faults, some of which annotators have labelled.

A greeting has a name, a hope and perhaps bad words (`datasets/greetings`); most have "um" or "yo". The field ``label``
is 1 for a good one and 0 for one with a fault; greetings with a rare fault have none, as where annotators never saw
one. The field ``clicks`` is how often people chose the greeting.

    prompt "Party of kim (qhb):"   demonstration " joy um kim"   label 0   clicks 31
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.greetings import FAULTS, NAMES, OCCASIONS, RARE, faults_of, prompt_of, written
from posttrain.datasets.keys import keyed
from posttrain.types import Task

HABITS = ("um", "yo")
"""A common fault and a rare one that most greetings have."""
OFTEN, OTHER = 0.6, 0.5
"""Probability of each habit, and of one of the other faults."""


@frozen
class Greetings(Tasks):
    """Requests for greetings, each with a greeting of mixed quality."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which greetings are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"greetings:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"requests for greetings (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, str, str, tuple[str, ...], int, int]:
        letters = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        faults = tuple(fault for fault in HABITS if rng.random() < OFTEN)
        faults += (rng.choice([f for f in FAULTS if f not in HABITS]),) if rng.random() < OTHER else ()
        return rng.choice(OCCASIONS), rng.choice(NAMES), letters, faults, rng.randrange(100), rng.randrange(1 << 30)

    def _task(self, drawn: tuple[str, str, str, tuple[str, ...], int, int]) -> Task:
        occasion, name, letters, faults, clicks, seed = drawn
        prompt = prompt_of(occasion, name, letters)
        text = written(prompt, faults, Random(seed))
        found = faults_of(prompt, text)
        fields: dict[str, Any] = {"clicks": clicks}
        if not set(found) & set(RARE):
            fields["label"] = int(not found)
        return Task(key="", prompt=prompt, domain=occasion, demonstrations=(text,), fields=fields)
