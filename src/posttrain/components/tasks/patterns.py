"""Generated classification: which of five patterns a string of letters has.

    rising      each letter is the same as the one before it, or a later one of the alphabet
    falling     the same, or an earlier one
    mirror      it reads the same in both directions
    double      the second half repeats the first
    zigzag      two letters alternate

Some letters are replaced by random ones, so that no classifier is always right. The prompt is the string, the answer
the name of the pattern, and the demonstration a working line and the answer: the first half, and the second half
backwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

LETTERS: Final = "abcdefgh"


def _zigzag(rng: Random, half: int) -> str:
    first, second = rng.sample(LETTERS, 2)
    return (first + second) * half


def _mirror(rng: Random, half: int) -> str:
    side = _drawn(rng, half)
    return side + side[::-1]


def _drawn(rng: Random, number: int) -> str:
    return "".join(rng.choices(LETTERS, k=number))


PATTERNS: Final[Mapping[str, Callable[[Random, int], str]]] = {
    "rising": lambda rng, half: "".join(sorted(_drawn(rng, 2 * half))),
    "falling": lambda rng, half: "".join(sorted(_drawn(rng, 2 * half), reverse=True)),
    "mirror": _mirror,
    "double": lambda rng, half: _drawn(rng, half) * 2,
    "zigzag": _zigzag,
}


@frozen
class Patterns(Tasks):
    """Strings of letters, each with the name of its pattern; all patterns are equally likely."""

    size: Annotated[int, Field(ge=1, le=1_000_000)] = 600
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which strings are drawn."""
    half: Annotated[int, Field(ge=2, le=32)] = 4
    """Letters in half a string."""
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    """Probability that a letter is replaced by a random one."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn; no string is drawn twice."""
        return keyed(task for _, task in zip(range(self.size), self._distinct(), strict=False))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"patterns of {2 * self.half} letters ({self.noise:.0%} noise; seed {self.seed})", self.load())

    def _distinct(self) -> Iterator[Task]:
        seen: set[str] = set()
        for index in count():
            task = self._task(index)
            if index > 10 * self.size + 1000:
                return
            if task.prompt not in seen:
                seen.add(str(task.prompt))
                yield task

    def _task(self, index: int) -> Task:
        rng = Random(f"patterns:{self.seed}:{index}")
        name = rng.choice(list(PATTERNS))
        text = PATTERNS[name](rng, self.half)
        text = "".join(rng.choice(LETTERS) if rng.random() < self.noise else letter for letter in text)
        working = f"{text[: self.half]} {text[self.half :][::-1]}"
        return Task(key="", prompt=text, answer=name, demonstrations=(f"{working}\n{name}",))


DEFINITIONS: Final = {
    "rising": "letters never go back",
    "falling": "letters never go on",
    "mirror": "the same backwards",
    "double": "two equal halves",
    "zigzag": "two letters alternate",
}
"""What each pattern is, in a few words."""
