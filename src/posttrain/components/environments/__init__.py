"""Environments for rollouts of several turns: tools, games, simulated users.

Contract: the first observation is a function of the task alone, so that all rollouts of a task start in the same state.
Later observations are a function of the task, the actions so far and the random numbers drawn so far. An instance
serves one rollout and shares nothing with others.

An environment may fail: it runs the user's code, a tool or a service. `Environment.open` gives instances whose every
failure is an `EnvironmentFailed`. It ends one rollout, and is neither a crash of the run nor a wrong answer of the
model.
"""

import asyncio
import hashlib
import json
import math
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from posttrain.component import Component
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Fact, Message, Task
from posttrain.types.episode_journal import EpisodeJournal as EpisodeJournal
from posttrain.types.episode_journal import journaling as journaling
from posttrain.types.episode_journal import open_journal as open_journal

T = TypeVar("T")
Draw = Callable[[], float]
"""Draws a number from [0, 1)."""
REQUESTS = 32
"""Most texts of other roles in a turn."""
Resumes = Literal["replay", "record", "anew"]
"""How a rollout that began in an earlier process goes on: ``replay`` performs its actions again, and compares the
answers; ``record`` takes the answers from the record, and performs only what is new; ``anew`` does so for an episode
that has ended, and starts any other one again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the policy sees at the start of a turn."""

    text: str = ""
    state_key: str | None = None
    """Identifies the state, for methods that compare turns in the same state. None takes the text."""
    legal: tuple[str, ...] | None = None
    """The actions that may follow, where the environment lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What another role is to write before a turn is over, such as a simulated user.

    What only that role may read is in `prompt`, and in no observation.
    """

    role: str
    prompt: tuple[Message, ...]
    max_tokens: int = 256


Writer = Callable[[Request], Awaitable[str]]
"""Writes what a role was requested to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of an action."""

    observation: Observation = Observation()
    """Observation of the next turn, if there is one."""
    reward: float = 0.0
    """Reward of this turn, independent of the verdict on the whole rollout."""
    done: bool = False
    """Whether the rollout has ended."""
    truncated: bool = False
    """Whether it ended at a limit of time, so that the state is not a final one; only with `done`."""
    valid: bool = True
    """Whether the action is one that the environment defines."""
    latency: float = 0.0
    """What the action takes by the environment's own statement, in the time of a token that is sampled. No clock is
    read: which rollouts are first, and what a quota lets begin, goes by tokens and this."""
    left: Mapping[str, int] | None = None
    """What limits of the environment itself leave, by name: ``{"calls": 3}``; None without one."""
    request: Request | None = None
    """What another role is to write; `Instance.reply` takes it, and has what follows. Rewards and latencies add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The environment's result for the whole rollout, apart from the rewards of its turns."""

    value: float
    solved: bool
    explanation: str = ""


@dataclass(frozen=True, kw_only=True)
class Episode(Fact):
    """Record of a rollout in an environment; rollouts of several turns have one."""

    valid_turns: tuple[bool, ...] = ()
    """[turns] whether each action is one that the environment defines."""
    turn_rewards: tuple[float, ...] = ()
    """[turns] reward of each turn."""
    cost: float = 0.0
    """Tokens that were written in the turns, and latencies that the environment stated, in tokens."""
    tokens_left: tuple[int, ...] | None = None
    """[turns] what a limit of tokens in all left after each turn; None without one."""
    limits_left: tuple[Mapping[str, int], ...] | None = None
    """[turns] `Outcome.left`; None where the environment has no such limits."""
    measures: Mapping[str, float] | None = None
    """Measurements of the environment; None where it failed before they were taken."""
    verdict: Verdict | None = None
    """The environment's verdict on the whole rollout, if it gives one."""

    @property
    def turns(self) -> int:
        """Number of turns."""
        return len(self.valid_turns)

    @property
    def invalid_turns(self) -> int:
        """Number of actions that the environment does not define."""
        return self.valid_turns.count(False)

    def record(self) -> dict[str, Any]:
        """Numbers of turns, then the fields."""
        return {"turns": self.turns, "invalid_turns": self.invalid_turns, **super().record()}


class Instance:
    """An environment in the course of one rollout of a task."""

    async def start(self) -> None:
        """Get ready, where that has to wait: connect, start a process. Called once, before `begin`."""

    def begin(self) -> Observation:
        """Return the observation after the task's prompt; by default an empty one. Called once, first."""
        return Observation()

    async def step(self, action: str) -> Outcome:
        """Perform an action: the text of the model's turn, stop strings included."""
        raise NotImplementedError

    async def reply(self, text: str) -> Outcome:
        """Take what another role wrote; see `Outcome.request`."""
        raise NotImplementedError

    async def solution(self) -> str | None:
        """The next turn of a player who solves the task; None where the environment has no such player."""
        return None

    async def example(self) -> str | None:
        """A turn of the form that the environment shows, good or bad; None where it shows none."""
        return None

    async def finish(self) -> None:
        """Collect what `verdict` and `measures` need, where that has to wait. Called when the rollout has ended."""

    def verdict(self) -> Verdict | None:
        """Score the rollout, which has ended; None leaves the scoring to a reward component."""
        return None

    def verdict_of(self, role: str) -> Verdict | None:
        """Score the rollout for another role that wrote in it, with the rewards of its turns; None without a result."""
        return None

    def measures(self) -> Mapping[str, float]:
        """Measurements of the rollout for the record; their means become metrics."""
        return {}

    def account(self) -> Any:
        """What `verdict` and `measures` are computed from so far, as plain data, where answers come from a record."""
        return None

    def recall(self, account: Any) -> None:
        """Go on from this account: the answers so far came from the record. Called after `begin`, before a step."""

    async def close(self) -> None:
        """Release resources. Called once, last, however the rollout ended."""


class Environment(Component):
    """Makes an instance for every rollout."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a turn, such as the end of a tool call, in addition to those of the sampling."""
        return ()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError`, before anything is sampled, for tasks that do not fit this environment."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """Make a new instance. Its first observation must not depend on `draw`."""
        raise NotImplementedError

    @property
    def roles(self) -> frozenset[str]:
        """Roles that write for its instances, see `Outcome.request`."""
        return frozenset()

    def with_other(self, role: str) -> "Environment":
        """The same game with the model of a role as the other player. Raises `UserError` where there is none."""
        raise UserError(
            f"the environment '{self.kind}' has no other player, and two agents are to play each other; take a game "
            "such as bargain or textarena:SimpleNegotiation-v0"
        )

    def check_alone(self, tasks: Sequence[Task]) -> None:
        """As `check`, where no other role can write. Raises `UserError`."""
        if self.roles:
            raise UserError(
                f"the environment '{self.kind}' has the role '{min(self.roles)}' write in its episodes, which no one "
                "does here; only rollout.kind=turns lets other roles write"
            )
        self.check(tasks)

    @property
    def resumes(self) -> Resumes:
        """How a rollout that began in an earlier process goes on."""
        return "replay"

    @asynccontextmanager
    async def open(
        self, task: Task, draw: Draw, record: "Record | None" = None, write: Writer | None = None
    ) -> "AsyncIterator[Contained]":
        """A new instance, contained, and closed at the end. Raises `EnvironmentFailed`.

        `write` lets other roles write, where an instance requests it. With the record of a rollout it goes on from
        there, and adds to it. Raises `EpisodeChanged` where it cannot.
        """
        with contained("instance"):
            own = self.instance(task, draw)
            instance = Contained(own, write) if record is None else self._continued(own, write, record)
        try:
            await instance.start()
            yield instance
        finally:
            await instance.close()

    def _continued(self, own: Instance, write: Writer | None, record: "Record") -> "Contained":
        """The instance as the record lets it go on."""
        if self.resumes != "replay":
            return Contained(record.recorded(own, self.resumes, self.roles), write)
        kept, roles = record.kept, self.roles
        return Contained(own, write) if kept is None else Continued(record.noted(own, roles), write, kept)


class Record(Protocol):
    """What is known of a rollout's episode from an earlier process."""

    @property
    def kept(self) -> list[Any] | None:
        """The answers in the checkpoint, to be added to; None where rollouts end in the step that they begin in."""

    def recorded(self, instance: Instance, resumes: Resumes, roles: frozenset[str]) -> Instance:
        """The instance, answered from the record where that has an answer. Raises `EpisodeChanged` where it cannot."""

    def noted(self, instance: Instance, roles: frozenset[str]) -> Instance:
        """The instance, whose answers are written down, and come from there where a run is computed again."""


def with_opening(prompt: str | tuple[Message, ...], opening: str) -> str | tuple[Message, ...]:
    """Append the first observation to a prompt: in a chat, to the user's last message."""
    if not opening:
        return prompt
    if isinstance(prompt, str):
        return prompt + opening
    last = prompt[-1]
    if last["role"] != "user":
        return (*prompt, Message(role="user", content=opening))
    return (*prompt[:-1], Message(role="user", content=f"{last['content']}\n\n{opening}"))


class EnvironmentFailed(Exception):
    """An environment could not continue; the message has the error and its place."""

    def __init__(self, message: str, counted: str = "") -> None:
        """`counted` names a kind of failures that are counted in the metrics."""
        super().__init__(message)
        self.counted = counted


class EpisodeChanged(Exception):
    """An episode that began in an earlier process is not the same here: its rollout has to start anew."""


class Contained:
    """An instance whose failures and results of a wrong type are raised as `EnvironmentFailed`."""

    def __init__(self, instance: Instance, write: Writer | None = None) -> None:
        self._instance, self._write = instance, write

    async def start(self) -> None:
        """Get ready."""
        with contained("start"):
            await self._instance.start()

    async def solution(self) -> str | None:
        """The next turn of a player who solves the task, if there is one."""
        with contained("solution"):
            turn = await self._instance.solution()
            return None if turn is None else _of_type(str, turn)

    async def example(self) -> str | None:
        """A turn of the form that the environment shows, if it shows one."""
        with contained("example"):
            return None if (turn := await self._instance.example()) is None else _of_type(str, turn)

    async def finish(self) -> None:
        """Collect the results of a rollout that has ended."""
        with contained("finish"):
            await self._instance.finish()

    def begin(self) -> Observation:
        """Return the first observation."""
        with contained("begin"):
            return _observation(_of_type(Observation, self._instance.begin()))

    async def step(self, action: str) -> Outcome:
        """Perform an action, with what other roles write before the turn is over."""
        with contained("step"):
            outcome = checked(await self._instance.step(action))
        for _ in range(REQUESTS):
            if outcome.request is None:
                return outcome
            if self._write is None:
                raise EnvironmentFailed(f"the role '{outcome.request.role}' is to write, and no one does here")
            text = await self._write(outcome.request)
            with contained("reply"):
                after = checked(await self._instance.reply(text))
            outcome = replace(
                after,
                reward=outcome.reward + after.reward,
                latency=outcome.latency + after.latency,
                valid=outcome.valid and after.valid,
            )
        raise EnvironmentFailed(f"more than {REQUESTS} texts of other roles were requested in a turn")

    def verdict(self, role: str | None = None) -> Verdict | None:
        """The environment's verdict, if it gives one; with a role, that for this other role."""
        with contained("verdict"):
            verdict = self._instance.verdict() if role is None else self._instance.verdict_of(role)
            if verdict is not None:
                _finite(_of_type(Verdict, verdict).value, "the value of a verdict")
            return verdict

    def measures(self) -> dict[str, float]:
        """Measurements of the rollout."""
        with contained("measures"):
            return {str(name): _finite(value, f"'{name}'") for name, value in self._instance.measures().items()}

    async def close(self) -> None:
        """Release resources."""
        with contained("close"):
            await self._instance.close()


def plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data, without what it requests of another role."""
    seen = outcome.observation
    return {
        "text": seen.text,
        "state_key": seen.state_key,
        "legal": None if seen.legal is None else list(seen.legal),
        "reward": float(outcome.reward),
        "done": bool(outcome.done),
        "truncated": bool(outcome.truncated),
        "valid": bool(outcome.valid),
        "latency": float(outcome.latency),
        **({} if outcome.left is None else {"left": dict(outcome.left)}),
    }


class Continued(Contained):
    """An instance of a rollout that may have begun in an earlier process: its actions are performed again."""

    def __init__(self, instance: Instance, write: Writer | None, record: list[str]) -> None:
        """`record` has the digest of each answer so far."""
        super().__init__(instance, write)
        self._record, self._place = record, 0

    def begin(self) -> Observation:
        """Return the first observation."""
        return self._same(Outcome(observation=super().begin())).observation

    async def step(self, action: str) -> Outcome:
        """Perform an action."""
        return self._same(await super().step(action))

    def _same(self, outcome: Outcome) -> Outcome:
        """The outcome, which is in the record now. Raises `EpisodeChanged` where the record has another one."""
        entry = hashlib.blake2b(json.dumps(plain(outcome)).encode(), digest_size=8).hexdigest()
        if self._place == len(self._record):
            self._record.append(entry)
        elif self._record[self._place] != entry:
            raise EpisodeChanged(f"answer {self._place} of the environment is not the one that it gave before")
        self._place += 1
        return outcome


@contextmanager
def contained(method: str) -> Iterator[None]:
    """Turn all that an environment raises, ``exit()`` included, into `EnvironmentFailed`, but a stop of the run."""
    try:
        yield
    except (EnvironmentFailed, EpisodeChanged, AlarmStop, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise EnvironmentFailed(f"the environment failed in {method}(): {_explained(error)}") from error


def _explained(error: BaseException) -> str:
    """Type, message and the line at which an error was raised."""
    message = " ".join("".join(traceback.format_exception_only(error)).split())[:500]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{message} ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if len(frames) > 1 else message


def _of_type(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} is needed, got {type(value).__name__}")
    return value


def _observation(observation: Observation) -> Observation:
    _of_type(str, observation.text)
    return observation


def checked(outcome: Outcome) -> Outcome:
    """The outcome. Raises `TypeError` and `ValueError` for what is none."""
    _of_type(Outcome, outcome)
    _observation(outcome.observation)
    _finite(outcome.reward, "the reward of a turn")
    if _finite(outcome.latency, "the latency of a turn") < 0:
        raise ValueError(f"the latency of a turn is {outcome.latency}")
    return outcome


def _finite(value: float, what: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}")
    return number
