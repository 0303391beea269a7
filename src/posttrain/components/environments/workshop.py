"""A workshop with hidden preconditions: seven actions, six of which may fail; the goal is a painted chair.

    door, light      open the door, switch on the light: always work
    wood             needs the open door
    saw              needs the light
    cut              needs wood and saw
    glue             needs the cut wood
    paint            needs the glued chair; the goal

The state is seven words, such as ``door:shut light:off wood:no saw:no cut:no glue:no rain``, and the observation the
same, after the word ``fails`` where the last action did. Whether door and light are on at first, and the weather, which
has no effect, are drawn by the task's key. Everything may be done again, where its precondition holds. The optimum is
5, plus 1 for a shut door and 1 for the light.

Source: the smallest experiment of WALL-E 2.0, arXiv:2504.15785; the workshop is ours.
"""

import zlib
from collections.abc import Mapping
from random import Random
from typing import Final

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "door": (),
    "light": (),
    "wood": ("door",),
    "saw": ("light",),
    "cut": ("wood", "saw"),
    "glue": ("cut",),
    "paint": ("glue",),
}
"""What must be done before an action works."""
WORDS: Final[Mapping[str, tuple[str, str]]] = {"door": ("shut", "open"), "light": ("off", "on")}
"""Words for what is not done and what is; others have no and yes."""


@frozen
class Workshop(Environment):
    """One chair per task."""

    horizon: PositiveInt = 25
    """Actions after which the rollout ends."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The workshop of the task. Nothing is random."""
        rng = Random(zlib.crc32(f"workshop:{task.key}".encode()))
        done = {name for name in ("door", "light") if rng.random() < 0.5}
        return Bench(self.horizon, done, rng.choice(("rain", "sun")))


class Bench(Instance):
    """One rollout."""

    def __init__(self, horizon: int, done: set[str], weather: str) -> None:
        self._horizon, self._done, self._weather = horizon, done, weather
        self._steps, self._failed = 0, 0

    def begin(self) -> Observation:
        """The workshop before the first action."""
        return self._observation("")

    async def step(self, action: str) -> Outcome:
        """Act."""
        name = action.strip()
        self._steps += 1
        works = name in NEEDS and self._done.issuperset(NEEDS[name])
        if works:
            self._done.add(name)
        self._failed += not works
        over = "paint" in self._done or self._steps == self._horizon
        return Outcome(observation=self._observation("" if works else "fails "), done=over, valid=name in NEEDS)

    async def solution(self) -> str:
        """The next action of a shortest way."""
        return next((name for name in NEEDS if name not in self._done), "paint")

    def verdict(self) -> Verdict:
        """1 for a painted chair."""
        solved = "paint" in self._done
        return Verdict(value=float(solved), solved=solved, explanation=f"{self._steps} actions, {self._failed} failed")

    def measures(self) -> Mapping[str, float]:
        """Actions, those that failed, and what the verdict misses of 1."""
        regret = 1.0 - self.verdict().value
        return {"actions": float(self._steps), "failed": float(self._failed), "regret": regret}

    def _observation(self, result: str) -> Observation:
        words = [f"{name}:{WORDS.get(name, ('no', 'yes'))[name in self._done]}" for name in NEEDS if name != "paint"]
        state = " ".join([*words, self._weather])
        return Observation(text=f"{result}{state}\n", state_key=state, legal=tuple(NEEDS))
