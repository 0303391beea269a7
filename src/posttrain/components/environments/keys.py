r"""A corridor with a key and a door: grab the key, and open the door with it. In hard rooms the key is rusty.

    r, l      one step to the right or left
    g         grab the key, where it lies
    i         oil it, while it is held; a rusty key opens nothing before
    d         throw it away, for good
    o         open the door, where it is, with a key that works; the goal

An observation has the distances to key and door and what is held: ``k2 d5 rusty\n``. Key and door are drawn by the
task's key, and with `which=mixed` whether the room is hard. The optimum is the sum of the distances, plus 2, or 3 in
hard rooms.

The environment's own player walks the optimum. A `flawed` one fails in hard rooms: it oils the key, but throws it away
in front of the door. It does what a policy that has only seen easy rooms does not, and fails none the less.

Source: the smallest experiment of EEF, arXiv:2504.13145: experts whose failures have useful parts; the corridor is
ours.
"""

import zlib
from collections.abc import Mapping
from random import Random
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

ACTIONS = ("r", "l", "g", "i", "d", "o")


@frozen
class Keys(Environment):
    """One room per task."""

    which: Literal["mixed", "easy", "hard"] = "mixed"
    """Rooms: half of them hard, or all of one kind."""
    flawed: bool = False
    """Whether the environment's own player fails in hard rooms."""
    longest: Annotated[int, Field(ge=1, le=1000)] = 3
    """Largest distance from the start to the key, and from there to the door."""
    horizon: PositiveInt = 14
    """Turns after which the rollout ends."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The room of the task. Nothing is random."""
        rng = Random(zlib.crc32(f"keys:{task.key}".encode()))
        key = rng.randint(1, self.longest)
        door = key + rng.randint(1, self.longest)
        rusty = rng.random() < 0.5
        return Room(self, key, door, self.which == "hard" or (self.which == "mixed" and rusty))


class Room(Instance):
    """One rollout."""

    def __init__(self, rules: Keys, key: int, door: int, hard: bool) -> None:
        self._rules, self._key, self._door, self._hard = rules, key, door, hard
        self._place, self._turns = 0, 0
        self._held, self._rusty, self._lost, self._open = False, hard, False, False

    def begin(self) -> Observation:
        """The room from its start."""
        return self._observation()

    async def step(self, action: str) -> Outcome:
        """Act."""
        self._turns += 1
        call = action.strip()
        if call in ("r", "l"):
            self._place = min(max(self._place + (1 if call == "r" else -1), 0), self._door)
        elif call == "g" and not self._lost and self._place == self._key:
            self._held = True
        elif call == "i" and self._held:
            self._rusty = False
        elif call == "d" and self._held:
            self._held, self._lost = False, True
        elif call == "o" and self._held and not self._rusty and self._place == self._door:
            self._open = True
        over = self._open or self._turns == self._rules.horizon
        return Outcome(observation=self._observation(), done=over, valid=call in ACTIONS)

    async def solution(self) -> str:
        """The next action of the shortest way, or of a player who throws away the key that was rusty."""
        if not self._held and not self._lost:
            return "r" if self._place < self._key else "g" if self._place == self._key else "l"
        if self._rusty and not self._lost:
            return "i"
        if self._place < self._door:
            return "r"
        return "d" if self._rules.flawed and self._hard and not self._lost else "o"

    def verdict(self) -> Verdict:
        """1 for an open door."""
        return Verdict(value=float(self._open), solved=self._open, explanation=f"{self._turns} turns")

    def measures(self) -> Mapping[str, float]:
        """Whether the room is hard, whether the key was oiled and thrown away, and what the verdict misses of 1."""
        oiled = self._hard and not self._rusty
        own = {"hard": float(self._hard), "oiled": float(oiled), "lost": float(self._lost)}
        return {**own, "regret": 1.0 - float(self._open)}

    def _observation(self) -> Observation:
        state = "lost" if self._lost else ("held " if self._held else "") + ("rusty" if self._rusty else "clean")
        text = f"k{self._key - self._place} d{self._door - self._place} {state}\n"
        return Observation(text=text, state_key=text, legal=ACTIONS)
