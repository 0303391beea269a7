r"""Two rooms with a key, a locked door and an exit; whatever happens has a caption. Only the exit is rewarded.

    u, d, l, r   one step
    k            take the key where it lies, or drop it
    o            open the door, next to it and with the key

The wall between the rooms has its door in the middle row. Each room is `room` wide and 3 high. An observation is a
caption and a state, ``you take the red key\nx3 y2 key shut\n``: the place, whether the key is held, lies here or
neither, and whether the door is open. The colour of key and door is drawn by the task's key, so that captions of one
kind differ. Taking and dropping the key can be repeated for ever. The optimum is 14 turns with rooms 4 wide, 10 with
rooms 2 wide. Random walks end at the exit with a probability of 2.4e-5 in 30 turns, or 1.5e-4 in 20 with rooms 2 wide.

Source: the smallest experiment of ONI, arXiv:2410.23022, sheet of row 208: a text grid with a sparse goal.
"""

import zlib
from collections.abc import Mapping
from random import Random
from typing import Annotated, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

ACTIONS: Final = ("u", "d", "l", "r", "k", "o")
COLOURS: Final = ("red", "blue", "green", "gold", "white", "black", "pink", "brown")
HEIGHT: Final = 3
WIDEST: Final = 10
MOVES: Final = {"u": (0, -1, "up"), "d": (0, 1, "down"), "l": (-1, 0, "left"), "r": (1, 0, "right")}
START: Final = (0, 0)
KINDS: Final = (
    "you stand in a room",
    *(f"you walk {word}" for _, _, word in MOVES.values()),
    "you bump into a wall",
    "nothing happens",
    *(
        text.format(colour)
        for colour in COLOURS
        for text in (
            "the {} door is locked",
            "you take the {} key",
            "you drop the {} key",
            "you open the {} door",
            "you walk through the {} door",
        )
    ),
    "you reach the exit",
)
"""All captions."""
HELPFUL: Final = ("you take", "you open", "through", "exit")
"""Captions of progress."""


@frozen
class Captioned(Environment):
    """The two rooms, with a colour for each task."""

    horizon: Annotated[int, Field(ge=1, le=1000)] = 30
    """Turns after which the rollout ends."""
    room: Annotated[int, Field(ge=1, le=WIDEST)] = 4
    """Width of each room."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The rooms of the task. Nothing else is random."""
        rng = Random(zlib.crc32(f"captioned:{task.key}".encode()))
        return Rooms(self.horizon, self.room, rng.choice(COLOURS))


class Rooms(Instance):
    """One rollout."""

    def __init__(self, horizon: int, room: int, colour: str) -> None:
        self._horizon, self._wall, self._colour = horizon, room, colour
        self._door, self._exit = (room, 1), (2 * room, 0)
        self._place, self._turns = START, 0
        self._key: tuple[int, int] | None = (room - 1, 2)
        self._open = self._out = False
        self._got = 0

    def begin(self) -> Observation:
        """The first room."""
        return self._seen("you stand in a room")

    async def step(self, action: str) -> Outcome:
        """Act."""
        return self.act(action)

    def act(self, action: str) -> Outcome:
        """Act, at once."""
        self._turns += 1
        call = action.strip()
        if call in MOVES:
            caption = self._moved(*MOVES[call])
        elif call == "k":
            caption = self._handled()
        elif call == "o" and self._key is None and not self._open and self._place == (self._wall - 1, 1):
            self._open = True
            caption = f"you open the {self._colour} door"
        else:
            caption = "nothing happens"
        over = self._out or self._turns == self._horizon
        return Outcome(observation=self._seen(caption), done=over, valid=call in ACTIONS)

    async def solution(self) -> str:
        """The next action of the shortest way."""
        x, y = self._place
        if self._key is not None and not self._open:
            return "k" if self._place == self._key else self._towards(*self._key)
        if not self._open:
            return "o" if (x, y) == (self._wall - 1, 1) else self._towards(self._wall - 1, 1)
        if x <= self._wall:
            return "r" if y == 1 else self._towards(x, 1)
        return self._towards(*self._exit)

    def verdict(self) -> Verdict:
        """1 at the exit."""
        return Verdict(value=float(self._out), solved=self._out, explanation=f"{self._turns} turns")

    def measures(self) -> Mapping[str, float]:
        """How often the key was taken, and whether the door was opened."""
        return {"taken": float(self._got), "opened": float(self._open)}

    def _moved(self, dx: int, dy: int, word: str) -> str:
        x, y = self._place[0] + dx, self._place[1] + dy
        if not (0 <= x <= 2 * self._wall and 0 <= y < HEIGHT) or (x == self._wall and y != 1):
            return "you bump into a wall"
        if (x, y) == self._door and not self._open:
            return f"the {self._colour} door is locked"
        self._place, self._out = (x, y), (x, y) == self._exit
        if self._out:
            return "you reach the exit"
        return f"you walk through the {self._colour} door" if (x, y) == self._door else f"you walk {word}"

    def _handled(self) -> str:
        if self._key is None:
            self._key = self._place
            return f"you drop the {self._colour} key"
        if self._key == self._place:
            self._key, self._got = None, self._got + 1
            return f"you take the {self._colour} key"
        return "nothing happens"

    def _towards(self, x: int, y: int) -> str:
        own_x, own_y = self._place
        if own_x != x:
            return "r" if own_x < x else "l"
        return "d" if own_y < y else "u"

    def _seen(self, caption: str) -> Observation:
        x, y = self._place
        held = "key" if self._key is None else "here" if self._key == self._place else "none"
        state = f"x{x} y{y} {held} {'open' if self._open else 'shut'}"
        return Observation(text=f"{caption}\n{state}\n", state_key=state, legal=ACTIONS)
