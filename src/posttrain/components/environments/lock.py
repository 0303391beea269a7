r"""A combination lock: one symbol in each turn, and a reward only if all are right.

An observation has the number of the turn: ``turn 2\n``. Nothing shows whether a symbol was right before the last one
was given. The combination is that of the environment, the same for every task, so that only its reward can teach it.
The optimum is 1; a policy that guesses opens the lock with the probability symbols ** -turns.

Source: the smallest experiment of ArCHer, arXiv:2402.19446: credit over turns; the lock is ours.
"""

import string
from collections.abc import Mapping
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task


@frozen
class Lock(Environment):
    """One lock, whose combination the reward alone shows."""

    turns: Annotated[int, Field(ge=1, le=100)] = 3
    """Symbols of the combination."""
    symbols: Annotated[int, Field(ge=2, le=26)] = 4
    """Letters that a symbol may be, from ``a``."""
    seed: NonNegativeInt = 0
    """Which combination."""

    @property
    def combination(self) -> str:
        """The symbols that open it."""
        rng = Random(f"lock:{self.seed}")
        return "".join(rng.choice(string.ascii_lowercase[: self.symbols]) for _ in range(self.turns))

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The lock. Nothing is random."""
        return Dial(self.combination, tuple(string.ascii_lowercase[: self.symbols]))


class Dial(Instance):
    """One rollout."""

    def __init__(self, combination: str, legal: tuple[str, ...]) -> None:
        self._combination, self._legal = combination, legal
        self._given: list[str] = []

    def begin(self) -> Observation:
        """The first turn."""
        return self._observation()

    async def step(self, action: str) -> Outcome:
        """Give a symbol."""
        self._given.append(action.strip())
        over = len(self._given) == len(self._combination)
        return Outcome(observation=self._observation(), done=over, valid=self._given[-1] in self._legal)

    async def solution(self) -> str:
        """The next symbol of the combination."""
        return self._combination[len(self._given)]

    def verdict(self) -> Verdict:
        """1 where all symbols are right."""
        solved = self._given == list(self._combination)
        return Verdict(
            value=float(solved), solved=solved, explanation=f"{self._right} of {len(self._combination)} right"
        )

    def measures(self) -> Mapping[str, float]:
        """How many symbols are right, and what the verdict misses of 1."""
        return {"right": float(self._right), "regret": 1.0 - self.verdict().value}

    @property
    def _right(self) -> int:
        return sum(a == b for a, b in zip(self._given, self._combination, strict=False))

    def _observation(self) -> Observation:
        return Observation(text=f"turn {len(self._given) + 1}\n", legal=self._legal)
