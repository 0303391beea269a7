r"""A donor of a hidden kind: the answer to the first turn shows it, and one of two pleas suits it.

The first observation is ``a donor\n``. After any first turn the donor answers ``i am warm\n`` or ``i am cool\n``. The
second turn is a plea; ``story`` suits the first kind, ``facts`` the second. The reward is 1 where it suits, and the
last observation ``yes\n`` or ``no\n``. The kind is that of the task, drawn from its key.

Source: the smallest experiment of hindsight regenerations, arXiv:2411.05194: persuasion in two turns. The
donor is ours.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

SHOWN: Final = ("i am warm\n", "i am cool\n")
PLEAS: Final = ("story", "facts")
GREETINGS: Final = ("hello", "hi")


def kind_of(task: Task) -> int:
    """Which plea suits the donor of a task: 0 or 1."""
    return Random(f"donor:{task.key}").randrange(2)


@frozen
class Donor(Environment):
    """One donor for each task."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The donor. Nothing is random."""
        return Call(kind_of(task))


class Call(Instance):
    """One rollout."""

    def __init__(self, kind: int) -> None:
        self._kind, self._turns = kind, list[str]()

    def begin(self) -> Observation:
        """Nothing is known yet."""
        return Observation(text="a donor\n", legal=tuple(f"{text}\n" for text in GREETINGS))

    async def step(self, action: str) -> Outcome:
        """Take a turn."""
        self._turns.append(action.strip())
        if len(self._turns) == 1:
            seen = Observation(text=SHOWN[self._kind], legal=tuple(f"{text}\n" for text in PLEAS))
            return Outcome(observation=seen, valid=self._turns[0] in GREETINGS)
        return Outcome(
            observation=Observation(text="yes\n" if self._suits else "no\n"), done=True, valid=self._turns[1] in PLEAS
        )

    async def solution(self) -> str:
        """A greeting, then the plea that suits."""
        return f"{PLEAS[self._kind] if self._turns else GREETINGS[0]}\n"

    def verdict(self) -> Verdict:
        """1 where the plea suited."""
        return Verdict(value=float(self._suits), solved=self._suits)

    def measures(self) -> Mapping[str, float]:
        """What the verdict misses of 1, that of the plea that suits."""
        return {"regret": 1.0 - float(self._suits)}

    @property
    def _suits(self) -> bool:
        return len(self._turns) > 1 and self._turns[1] == PLEAS[self._kind]
