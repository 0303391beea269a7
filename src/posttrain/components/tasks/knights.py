r"""Knights and knaves: everyone says one thing, knights tell the truth and knaves lie; who is what has one solution.

The prompt has a line for each person, ``A: B is a knave``, ``B: A and C are alike``, ``C: A and B differ``. The
demonstration tries knights and knaves one person after the other, in the order of their names. It states whose words an
assignment contradicts, tries the other kind then, and returns to an earlier person where neither is possible::

    <think>A knight; B knight? A fails; B knave? B fails; return; A knave; B knight? right</think>
    <answer>A knave, B knight</answer>

Source: the puzzles of the warm-up of arXiv:2505.13718, with 3 to 7 people.

Differs: there, the traces are those of a reasoning model; here they are those of a search that errs and returns.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Annotated, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

People = Annotated[int, Field(ge=2, le=7)]
NAMES = "ABCDEFG"
KINDS = {True: "knight", False: "knave"}


class Words(NamedTuple):
    """What one person says: that a person is of a kind, or that two are alike or differ."""

    about: tuple[int, ...]
    """One person, or two."""
    claim: bool
    """Whether the one is a knight, or the two are alike."""

    def true(self, kinds: Mapping[int, bool]) -> bool:
        """Whether it is so, where all it is about are known."""
        if len(self.about) == 1:
            return kinds[self.about[0]] == self.claim
        return (kinds[self.about[0]] == kinds[self.about[1]]) == self.claim

    def text(self) -> str:
        """As in the prompt."""
        if len(self.about) == 1:
            return f"{NAMES[self.about[0]]} is a {KINDS[self.claim]}"
        both = " and ".join(NAMES[person] for person in self.about)
        return f"{both} {'are alike' if self.claim else 'differ'}"


@frozen
class Knights(Tasks):
    """Puzzles with exactly one solution; the field ``kinds`` has it, by name, for the reward ``knights``."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    people: Annotated[tuple[People, People], Ordered] = (3, 4)
    """Fewest and most people, 2 to 7, every number equally likely. There are 12 puzzles of two, and 544 of three."""
    demonstrate: bool = True
    """Whether tasks have a trace."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"knights:{self.seed}")))

    def describe(self) -> str:
        """Number of people, and an example."""
        few, many = self.people
        return describe(f"knights and knaves ({few} to {many} people; seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[Words, ...]:
        """Draw words until one assignment alone agrees with all of them."""
        count = rng.randint(*self.people)
        while True:
            puzzle = tuple(_words(rng, speaker, count) for speaker in range(count))
            if len(solutions(puzzle)) == 1:
                return puzzle

    def _task(self, puzzle: tuple[Words, ...]) -> Task:
        [kinds] = solutions(puzzle)
        answer = ", ".join(f"{NAMES[i]} {KINDS[kind]}" for i, kind in enumerate(kinds))
        lines = "".join(f"{NAMES[i]}: {words.text()}\n" for i, words in enumerate(puzzle))
        trace = f"<think>{'; '.join(search(puzzle))}</think><answer>{answer}</answer>"
        return Task(
            key="",
            prompt=f"Knights tell the truth, knaves lie.\n{lines}Who is what?\n",
            answer=answer,
            domain=f"{len(puzzle)} people",
            demonstrations=(trace,) if self.demonstrate else (),
            fields={"kinds": {NAMES[i]: KINDS[kind] for i, kind in enumerate(kinds)}},
        )


def solutions(puzzle: Sequence[Words]) -> list[tuple[bool, ...]]:
    """Every assignment in which the words of knights are true and those of knaves are not."""
    every = product((True, False), repeat=len(puzzle))
    return [kinds for kinds in every if not _failing(puzzle, dict(enumerate(kinds)))]


def search(puzzle: Sequence[Words]) -> list[str]:
    """The steps of a search with returns, up to the first solution."""
    steps: list[str] = []
    _try(puzzle, {}, steps)
    return steps


def _try(puzzle: Sequence[Words], kinds: dict[int, bool], steps: list[str]) -> bool:
    """Try both kinds of the next person; whether a solution was found."""
    person = len(kinds)
    for kind in (True, False):
        now = {**kinds, person: kind}
        failing = _failing(puzzle, now)
        name, whole = f"{NAMES[person]} {KINDS[kind]}", len(now) == len(puzzle)
        if failing:
            steps.append(f"{name}? {NAMES[failing[0]]} fails")
        elif whole:
            steps.append(f"{name}? right")
            return True
        else:
            steps.append(name)
            if _try(puzzle, now, steps):
                return True
    steps.append("return")
    return False


def _failing(puzzle: Sequence[Words], kinds: Mapping[int, bool]) -> list[int]:
    """The speakers whose words contradict their kind, of those whose words are about known people only."""
    return [
        speaker
        for speaker, words in enumerate(puzzle)
        if speaker in kinds and all(p in kinds for p in words.about) and words.true(kinds) != kinds[speaker]
    ]


def _words(rng: Random, speaker: int, count: int) -> Words:
    """Words about another person, or about two people."""
    others = [person for person in range(count) if person != speaker]
    if rng.random() < 0.5:
        return Words((rng.choice(others),), rng.random() < 0.5)
    return Words(tuple(sorted(rng.sample(range(count), 2))), rng.random() < 0.5)
