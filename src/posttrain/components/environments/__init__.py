"""Worlds that answer: several turns, tools, games, simulated users.

Contract: what a world shows first is a function of the task alone, so that all attempts at a task begin alike; what it
answers is a function of the task, the actions so far and the numbers that it drew; a world serves one attempt and
shares nothing with others.

A world may fail: it is somebody's code, a tool, a service. `Environment.open` hands out worlds whose every failure is a
`WorldFailed`, which breaks off one attempt and is neither a crash of the run nor a wrong answer of the model.
"""

import asyncio
import math
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from posttrain.component import Component
from posttrain.types import Fact, Message, Task

T = TypeVar("T")
Draw = Callable[[], float]
"""Gives a number in [0, 1), another one at each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an actor sees when its turn comes."""

    text: str = ""
    state_key: str | None = None
    """Names what the actor sees, for methods that compare turns in the same state; None takes the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What comes of an action."""

    observation: Observation = Observation()
    """Seen in the next turn, if there is one."""
    reward: float = 0.0
    """Credited to this turn, whatever the judgement of the whole attempt will be."""
    done: bool = False
    """Whether the attempt is over."""
    valid: bool = True
    """Whether the action was one that the world knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a world says of the whole attempt, beside the rewards of its turns."""

    value: float
    solved: bool
    explanation: str = ""


@dataclass(frozen=True, kw_only=True)
class Episode(Fact):
    """How a rollout in an environment went; rollouts of several turns give it."""

    valid_turns: tuple[bool, ...] = ()
    """[turns] whether each action was one that the environment knows."""
    turn_rewards: tuple[float, ...] = ()
    """[turns] reward of each turn."""
    measures: Mapping[str, float] | None = None
    """What the environment measured; None where it failed before."""
    verdict: Verdict | None = None
    """The environment's verdict on the whole rollout, if it gives one."""

    @property
    def turns(self) -> int:
        """Number of turns."""
        return len(self.valid_turns)

    @property
    def invalid_turns(self) -> int:
        """Number of actions that the environment does not know."""
        return self.valid_turns.count(False)

    def record(self) -> dict[str, Any]:
        """Numbers of turns, then the fields."""
        return {"turns": self.turns, "invalid_turns": self.invalid_turns, **super().record()}


class World:
    """One attempt at a task, in progress."""

    def begin(self) -> Observation:
        """What is seen after the task's prompt; by default nothing. Called once, first."""
        return Observation()

    async def step(self, action: str) -> Outcome:
        """Act: `action` is what the model wrote in its turn, stop strings included."""
        raise NotImplementedError

    def verdict(self) -> Verdict | None:
        """Judge the attempt, which is over; None leaves it to somebody else."""
        return None

    def measures(self) -> Mapping[str, float]:
        """Numbers about the attempt for the record; their means become metrics."""
        return {}

    async def close(self) -> None:
        """Let go of what the world holds. Called once, last, however the attempt ended."""


class Environment(Component):
    """Makes a world for every attempt at a task."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a turn, the end of a tool call for example; beside those of the sampling."""
        return ()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError`, before anything is sampled, for tasks that are not of this world."""

    def world(self, task: Task, draw: Draw) -> World:
        """A fresh world. Its first observation must not depend on `draw`."""
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, task: Task, draw: Draw) -> "AsyncIterator[Contained]":
        """A fresh world, contained, and closed at the end. Raises `WorldFailed`."""
        with _blamed("begin"):
            world = Contained(self.world(task, draw))
        try:
            yield world
        finally:
            await world.close()


def with_opening(prompt: str | tuple[Message, ...], opening: str) -> str | tuple[Message, ...]:
    """A prompt with what a world shows first at its end: in a chat, as a part of what the user says last."""
    if not opening:
        return prompt
    if isinstance(prompt, str):
        return prompt + opening
    last = prompt[-1]
    if last["role"] != "user":
        return (*prompt, Message(role="user", content=opening))
    return (*prompt[:-1], Message(role="user", content=f"{last['content']}\n\n{opening}"))


class WorldFailed(Exception):
    """A world could not go on; the message says what happened and where."""


class Contained:
    """A world whose failures, and answers that are none, are `WorldFailed`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self) -> Observation:
        """What is seen first."""
        with _blamed("begin"):
            return _observation(_of_type(Observation, self._world.begin()))

    async def step(self, action: str) -> Outcome:
        """Act."""
        with _blamed("step"):
            outcome = _of_type(Outcome, await _awaited(self._world.step(action)))
            _observation(outcome.observation)
            _finite(outcome.reward, "the reward of a turn")
            return outcome

    def verdict(self) -> Verdict | None:
        """The world's judgement, if it has one."""
        with _blamed("verdict"):
            verdict = self._world.verdict()
            if verdict is not None:
                _finite(_of_type(Verdict, verdict).value, "the value of a verdict")
            return verdict

    def measures(self) -> dict[str, float]:
        """Numbers about the attempt."""
        with _blamed("measures"):
            return {str(name): _finite(value, f"'{name}'") for name, value in self._world.measures().items()}

    async def close(self) -> None:
        """Let go."""
        with _blamed("close"):
            await _awaited(self._world.close())


@contextmanager
def _blamed(method: str) -> Iterator[None]:
    """Turn whatever a world raises, ``exit()`` included, into `WorldFailed`; a stop of the run goes through."""
    try:
        yield
    except (WorldFailed, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise WorldFailed(f"the world failed in {method}(): {_explained(error)}") from error


def _explained(error: BaseException) -> str:
    """Type, message and the line at which an error was raised."""
    message = " ".join("".join(traceback.format_exception_only(error)).split())[:500]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{message} ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if len(frames) > 1 else message


async def _awaited(result: Awaitable[T]) -> T:
    return await result


def _of_type(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} is needed, got {type(value).__name__}")
    return value


def _observation(observation: Observation) -> Observation:
    _of_type(str, observation.text)
    return observation


def _finite(value: float, what: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}")
    return number
