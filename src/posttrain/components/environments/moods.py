"""A simulated user with a mood, who needs to be listened to, advised or praised; the mood at the end is the result.

Each reply moves the mood: up where it fits the user's need, down otherwise, by at most 10. The dialogue ends after
`horizon` replies, at a mood of 100, where the user leaves content, and at `lowest` or below, where the user leaves.
The need is drawn by the task's key. It changes once, before a reply that the rollout draws. What stands before
``</think>`` in a reply is not heard.

Source: the user simulator SAGE with the settings of RLVER, arXiv:2507.03112: 40 at the start, changes cut to [-10, 10],
no lower bound of the mood, 8 turns in training, an end at 0 (its evaluation: 10 turns, an end below 10).

Differs: the simulator there is a language model that prints the change. This one is a rule, so that it repeats.
"""

import zlib
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

LINES: Final = {"listen": "It was all too much.", "advise": "What should I do?", "praise": "I did my best."}
"""What the user writes, by the need."""
SILENT: Final = "Hm."
START: Final = 40
TOP: Final = 100
STEP: Final = 10
"""Largest change of the mood."""


@frozen
class Moods(Environment):
    """Users whose need shows in what they write, or only in how they react."""

    gain: Annotated[int, Field(ge=1, le=TOP)] = 6
    """Change of the mood after a reply that fits."""
    loss: Annotated[int, Field(ge=1, le=TOP)] = 4
    """Change, downwards, after any other reply."""
    horizon: PositiveInt = 8
    """Replies after which the dialogue ends."""
    lowest: Annotated[int, Field(ge=-TOP, le=TOP)] = 0
    """The user leaves at this mood, or below it."""
    shifts: bool = True
    """Whether the need changes once."""
    shown: bool = True
    """Whether the user's lines show the need; otherwise only the reaction to a reply does."""
    goal: Annotated[int, Field(ge=1, le=TOP)] = 80
    """Mood at the end from which the dialogue counts as solved."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A user with the need of the task."""
        first = zlib.crc32(f"moods:{task.key}".encode()) % len(LINES)
        turn = 2 + int(draw() * max(1, self.horizon - 3))
        other = (first + 1 + int(draw() * (len(LINES) - 1))) % len(LINES)
        return Dialogue(self, (list(LINES)[first], list(LINES)[other]), turn if self.shifts else self.horizon)


class Dialogue(Instance):
    """One dialogue."""

    def __init__(self, rules: Moods, needs: tuple[str, str], shift: int) -> None:
        self._rules, self._needs, self._shift = rules, needs, shift
        self._mood, self._turn, self._fits = START, 0, 0

    def begin(self) -> Observation:
        """The user's first line."""
        return self._observation("")

    async def step(self, action: str) -> Outcome:
        """React to a reply."""
        heard = action.rpartition("</think>")[2].lower()
        act = next((word for word in LINES if word in heard), None)
        fits = act == self._need
        change = self._rules.gain if fits else -self._rules.loss
        self._mood = min(TOP, self._mood + max(-STEP, min(STEP, change)))
        self._turn += 1
        self._fits += fits
        left = self._mood >= TOP or self._mood <= self._rules.lowest
        seen = self._observation("Thanks. " if fits else "No. ")
        return Outcome(observation=seen, done=left or self._turn == self._rules.horizon, valid=act is not None)

    async def solution(self) -> str:
        """The reply that fits."""
        return f"<think>{self._need}</think>{self._need}"

    def verdict(self) -> Verdict:
        """Whether the mood is good at the end."""
        solved = self._mood >= self._rules.goal
        return Verdict(value=float(solved), solved=solved, explanation=f"mood {self._mood} after {self._turn} replies")

    def measures(self) -> Mapping[str, float]:
        """The mood, the share of replies that fit, and what the verdict misses of 1."""
        fits = self._fits / max(1, self._turn)
        return {"mood": float(self._mood), "fits": fits, "regret": 1.0 - self.verdict().value}

    @property
    def _need(self) -> str:
        return self._needs[self._turn >= self._shift]

    def _observation(self, reaction: str) -> Observation:
        line = LINES[self._need] if self._rules.shown else SILENT
        replies = tuple(f"<think>{need}</think>{act}" for need in LINES for act in LINES)
        return Observation(text=f"\n{reaction}{line}\n", state_key=f"{reaction}{line}", legal=replies)
