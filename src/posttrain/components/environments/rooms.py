"""A ring of rooms of several cells each, most of them dark, some full of random colours until their light is off.

    r, l      one cell to the right or left, around the ring
    s         turn the light off, on the first cell of a room with light
    w         wait

An observation is one word: ``dark``, or in a room with light one of the colours, drawn anew each time. Which rooms have
light is drawn by the task's key; the episode starts in the middle of a dark room. Nothing ends an episode but
`horizon`. The result is the share of rooms that were visited.

Source: the four rooms of Adversarial Surprise, arXiv:2107.07394, noisy with a switch, or dark; the ring is ours.
"""

import zlib
from collections.abc import Mapping
from random import Random
from typing import Annotated, Final

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

COLOURS: Final = ("red", "green", "blue", "pink", "grey", "gold")
DARK: Final = "dark"
ACTIONS: Final = ("r", "l", "s", "w")


@frozen
class Rooms(Environment):
    """One ring per task."""

    rooms: Annotated[int, Field(ge=2, le=100)] = 6
    """Rooms of the ring."""
    lit: Annotated[int, Field(ge=0, le=99)] = 2
    """Rooms with random light; one room at least stays dark."""
    cells: Annotated[int, Field(ge=1, le=100)] = 3
    """Cells of a room."""
    horizon: PositiveInt = 64
    """Turns after which the episode ends."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The ring of the task; colours are drawn."""
        rng = Random(zlib.crc32(f"rooms:{task.key}".encode()))
        lit = rng.sample(range(1, self.rooms), min(self.lit, self.rooms - 1))
        return Ring(self, set(lit), draw)


class Ring(Instance):
    """One episode. Room 0 is dark, and the episode starts there."""

    def __init__(self, rules: Rooms, lit: set[int], draw: Draw) -> None:
        self._rules, self._lit, self._draw = rules, lit, draw
        self._cell, self._turns = rules.cells // 2, 0
        self._visited = {0}

    def begin(self) -> Observation:
        """The dark room."""
        return self._observation(DARK)

    async def step(self, action: str) -> Outcome:
        """Act."""
        valid = self.act(action.strip())
        return Outcome(observation=self._observation(self.seen()), done=self._turns >= self._rules.horizon, valid=valid)

    def act(self, action: str) -> bool:
        """Move, turn a light off, or do nothing; whether there is such an action."""
        self._turns += 1
        step = {"r": 1, "l": -1}.get(action, 0)
        self._cell = (self._cell + step) % (self._rules.rooms * self._rules.cells)
        self._visited.add(self._room)
        if action == "s" and self._cell % self._rules.cells == 0:
            self._lit.discard(self._room)
        return action in ACTIONS

    def seen(self) -> str:
        """What is seen now; a colour is drawn."""
        if self._room not in self._lit:
            return DARK
        return COLOURS[min(int(self._draw() * len(COLOURS)), len(COLOURS) - 1)]

    @property
    def place(self) -> int:
        """The cell within its room."""
        return self._cell % self._rules.cells

    async def solution(self) -> str:
        """A walk around the ring, which visits all rooms."""
        return "r"

    def verdict(self) -> Verdict:
        """The share of rooms that were visited; solved with all of them."""
        share = len(self._visited) / self._rules.rooms
        return Verdict(value=share, solved=share == 1.0, explanation=f"{len(self._visited)} rooms visited")

    def measures(self) -> Mapping[str, float]:
        """Rooms that were visited, rooms that still have light, and the share that was missed."""
        missed = 1.0 - self.verdict().value
        return {"rooms": float(len(self._visited)), "lit": float(len(self._lit)), "regret": missed}

    @property
    def _room(self) -> int:
        return self._cell // self._rules.cells

    def _observation(self, word: str) -> Observation:
        return Observation(text=f"\n{word} {self.place}", state_key=f"{word} {self.place}", legal=ACTIONS)
