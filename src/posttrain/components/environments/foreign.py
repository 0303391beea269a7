"""Environments of other libraries, unchanged, and plain classes of the user's; each episode in a process of its own.

    FrozenLake-v1                 Gymnasium's, by id
    pettingzoo:classic.tictactoe_v3   textarena:TicTacToe-v0   open_spiel:tic_tac_toe     by library and name
    gem:game:Mastermind-v0-easy       textworld:simple.z8      openenv:http://localhost:8000
    tau2:retail   bfcl:multi_turn_base   scienceworld:boil   nle:NetHackScore-v0   minihack:MiniHack-Room-5x5-v0
    verifiers:my_taskset          a taskset of verifiers, which is installed
    mcp:python server.py          the tools of an MCP server
    mine.py:Shop                  a class with reset(seed, ...) whose public typed methods are tools

An episode starts in a state that the task's key draws, the same for all rollouts of a task. What is drawn after that
depends on the rollout. Python's and numpy's global draws are seeded likewise: a process has one episode at a time, so
an episode alone equals it in company. An environment that does not repeat is refused, unless ``repeatable=false``. What
hangs, dies or grows beyond its limits is ended and replaced; its rollout ends with a failure, and no other one does.
With an episode end the processes that it left behind.
Long observations are cut and marked.

The value of an episode is the class's `reward()`, or 0 where the library rewards turns. It counts as solved if the sum
of both reaches `solved_at`.

Source: the interfaces of Gymnasium (arXiv:2407.17032), PettingZoo (arXiv:2009.14471), OpenSpiel (arXiv:1908.09453),
TextArena (arXiv:2504.11442), GEM (arXiv:2510.01051), TextWorld (arXiv:1806.11532), OpenEnv, the Model Context Protocol,
and TRL's environment factories.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated, Any

from pydantic import Field, JsonValue, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.component.user_code import require
from posttrain.components.environments import (
    Draw,
    Environment,
    EnvironmentFailed,
    Instance,
    Observation,
    Outcome,
    Request,
    Resumes,
    Verdict,
)
from posttrain.components.environments._foreign import DOWN, split
from posttrain.components.environments._foreign.random_calls import random_call
from posttrain.components.environments._foreign.servers import script
from posttrain.components.environments._foreign.serving import digest
from posttrain.components.environments._repeating import first_difference
from posttrain.errors import AlarmStop, UserError
from posttrain.grading.turn_calls import CallForm
from posttrain.grading.workers import Limits, Runner, Session
from posttrain.types import Task

_CACHED = ("runner", "described", "_repeats")
_SERVERS: Mapping[str, Resumes] = {"mcp": "record", "openenv": "anew"}
"""How episodes on servers go on in another process: a session of OpenEnv ends with its connection."""
_USERS = ("tau2", "textarena", "open_spiel", "pettingzoo")
_TURNS = 6
"""Most turns of the episode that is played twice."""
_PRELOAD = "posttrain.components.environments._foreign"


@frozen
class Foreign(Environment):
    """An environment that runs in workers."""

    source: str = "posttrain.datasets.shop:Shop"
    """``file.py:Class``, ``library:name``, or a bare id of Gymnasium."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the environment."""
    view: str = "text"
    """``text`` draws the state where the library can, ``numbers`` writes observations as they are, and
    ``file.py:function`` makes text of them."""
    calls: CallForm = "hermes"
    """Form of tool calls in a turn: see `posttrain.grading.turn_calls`."""
    step_seconds: PositiveFloat = 30.0
    """Limit of a step, in seconds on the clock; a third of it in processor time."""
    memory_mib: PositiveInt | None = 2048
    """Private memory of an episode's process, imports included; None for no limit."""
    characters: PositiveInt = 8000
    """Longest observation; the rest is cut, and the cut is marked."""
    latency: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    """What a turn of it takes, in the time of a sampled token; see `Outcome.latency`."""
    at_once: Annotated[int, Field(ge=1, le=4096)] = 64
    """Most episodes at a time: each has a process, with memory of its own. Others wait; results do not depend on it."""
    solved_at: float = 1.0
    """Sum of rewards from which an episode counts as solved."""
    repeatable: bool = True
    """Whether an episode is the same again with the same seed and actions, as is tried before the run. A run in an
    environment that does not repeat is another one each time."""
    user: str | None = None
    """Who plays the user of tau2, or the other players of TextArena, OpenSpiel and PettingZoo: the model of a role, as
    ``role:user``, or a function of its messages, as ``mine.py:user``. None shows what the user wants at once, and draws
    the moves of other players. A role's model may be an endpoint: ``models.user.source=http://...``."""
    goes_on: Resumes | None = None
    """How an episode that began in an earlier process goes on: see `Resumes`. None is ``replay``, but the answers of a
    server come from the record; an episode on an OpenEnv server that has not ended starts anew."""

    @field_validator("user")
    @classmethod
    def check_user(cls, user: str | None, info: ValidationInfo) -> str | None:
        """Refuse a user where there is none, or whom no one plays."""
        if user is not None and (split(str(info.data.get("source", "")))[0] not in _USERS or ":" not in user):
            raise PydanticCustomError(
                "user", f"only environments of {', '.join(_USERS)} have a user, which is role:NAME or file.py:function"
            )
        return user

    @property
    def resumes(self) -> Resumes:
        """As `goes_on` has it, or by the library."""
        return self.goes_on or _SERVERS.get(split(self.source)[0], "replay")

    @property
    def roles(self) -> frozenset[str]:
        """The user's role, if a model plays it."""
        kind, _, role = (self.user or "").partition(":")
        return frozenset({role}) if kind == "role" and role else frozenset()

    def with_other(self, role: str) -> "Environment":
        """The game with the model of a role as the other player. Raises `UserError` where there is none."""
        if split(self.source)[0] not in _USERS:
            return super().with_other(role)
        return replace(self, user=f"role:{role}")

    @property
    def user_code(self) -> tuple[str, ...]:
        """The file or module of a class, of a server, or of a view."""
        library, name = split(self.source)
        own = [self.view] if ":" in self.view else []
        if self.user is not None and not self.roles:
            own.append(self.user)
        if library == "mcp":
            own.append(script(name))
        elif library == "plain" and not name.startswith("posttrain."):
            own.append(name)
        return tuple(own)

    def check(self, tasks: Sequence[Task]) -> None:
        """The environment can be made, and the tasks have the fields that it needs."""
        for spelling in self.user_code:
            require(spelling)
        needed = [name for name, required in self.described["fields"].items() if required]
        for task in tasks:
            missing = [name for name in needed if name not in _fields(task)]
            if missing:
                raise UserError(
                    f"task {task.key} has no field '{missing[0]}', which reset() of '{self.source}' needs; give its "
                    "row a column of that name (tasks=FILE)"
                )
        if self.repeatable and tasks:
            self._check_repeats(tasks[0])

    def _check_repeats(self, task: Task) -> None:
        """Raise `UserError` where an episode is not the same again. Nothing is done to servers but a start."""
        if "_repeats" not in self.__dict__:
            turns = 0 if split(self.source)[0] in _SERVERS else _TURNS
            self.__dict__["_repeats"] = first_difference(self, task, turns)
        place = self.__dict__["_repeats"]
        if place is not None:
            what = f"its answer to turn {place}" if place else "its first observation"
            raise UserError(
                f"the environment '{self.source}' does not repeat: with the same seed and the same actions {what} was "
                "another one the second time. Draw from the seed that reset() takes, or set repeatable=false, and no "
                "run in it can be repeated or resumed to the bit"
            )

    def instance(self, task: Task, draw: Draw) -> Instance:
        """An episode, which starts its process later."""
        return Visit(self, self.described["tools"], task, int(draw() * 2**31))

    @cached_property
    def described(self) -> dict[str, Any]:
        """Schemas of the tools, and the fields of a task with whether they are needed. Raises `UserError`, and
        `AlarmStop` where a server is down.
        """
        (outcome,) = self.runner.run_now({"order": "describe"})
        if outcome.how != "ok":
            raise UserError(f"the environment '{self.source}' cannot be made: {_plain(outcome.explanation)}")
        found: dict[str, Any] = outcome.value
        self.stop_if_down(found)
        return found

    def stop_if_down(self, answer: Any) -> None:
        """Raise `AlarmStop` for an answer that its server is down: no other episode could have one either."""
        if isinstance(answer, Mapping) and DOWN in answer:
            raise AlarmStop(
                f"the server of the environment '{self.source}' is down: {answer[DOWN]}. Start it, then go on with "
                "posttrain resume RUN"
            )

    @cached_property
    def runner(self) -> Runner:
        """The workers."""
        argument = {
            "source": self.source,
            "arguments": {**self.arguments, **({"user": self.user} if self.user is not None else {})},
            "view": self.view,
            "calls": self.calls,
            "characters": self.characters,
        }
        seconds = self.step_seconds
        limits = Limits(cpu_seconds=seconds / 3, wall_seconds=seconds, memory_mib=self.memory_mib)
        preload = (f"{_PRELOAD}.serving", f"{_PRELOAD}.{split(self.source)[0]}")
        return Runner(f"{preload[0]}:open_environment", argument, limits=limits, preload=preload, workers=self.at_once)

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the workers."""
        return {name: value for name, value in self.__dict__.items() if name not in _CACHED}


class Visit(Instance):
    """One episode in a worker."""

    def __init__(self, rules: Foreign, tools: list[Any], task: Task, chance: int) -> None:
        self._rules, self._tools, self._task, self._chance = rules, tools, task, chance
        self._stack = AsyncExitStack()
        self._session: Session | None = None
        self._first = Observation()
        self._rewarded = 0.0
        self._value: float | None = None
        self._other: float | None = None
        self._counts = {"calls": 0.0, "failed_calls": 0.0}
        self._random = Random(chance)

    async def start(self) -> None:
        """Take a worker, and start the episode there."""
        self._session = await self._stack.enter_async_context(self._rules.runner.session())
        seed = zlib.crc32(f"environment:{self._task.key}".encode())
        seen = await self.order("reset", seed=seed, chance=self._chance, fields=_fields(self._task))
        if seen["tools"] != digest(self._tools):
            raise EnvironmentFailed("its tools are not those that it had before the run")
        self._first = self._observed(seen)

    def begin(self) -> Observation:
        """The tools, and what the environment shows first."""
        lines = ["Tools:", *(json.dumps(tool) for tool in self._tools)] if self._tools else []
        text = "\n".join([*lines, *([self._first.text.strip("\n")] if self._first.text.strip() else [])])
        given = self._task.prompt
        parted = f"\n{text}\n" if isinstance(given, str) and given[-1:].strip() else f"{text}\n"
        return Observation(
            text=(parted if isinstance(given, str) else text) if text else "",
            state_key=self._first.state_key,
            legal=self._first.legal,
        )

    async def step(self, action: str) -> Outcome:
        """Perform a turn."""
        return self._outcome(await self.order("step", action=action))

    async def reply(self, text: str) -> Outcome:
        """Take what the user wrote."""
        return self._outcome(await self.order("reply", text=text))

    def _outcome(self, seen: Mapping[str, Any]) -> Outcome:
        if seen["fault"]:
            raise EnvironmentFailed(f"the episode ended by its user: {seen['fault']}", counted=seen["fault"])
        self._rewarded += float(seen["reward"])
        for name in self._counts:
            self._counts[name] += seen[name]
        self._other = seen["other"]
        role = next(iter(self._rules.roles), "")
        return Outcome(
            observation=self._observed(seen),
            reward=float(seen["reward"]),
            done=bool(seen["terminated"] or seen["truncated"]),
            truncated=bool(seen["truncated"]),
            valid=bool(seen["valid"]),
            latency=self._rules.latency,
            request=None if seen["request"] is None else Request(role=role, prompt=tuple(seen["request"])),
        )

    async def solution(self) -> str | None:
        """The next turn of the environment's own solver, if it has one."""
        found: str | None = await self.order("solution")
        return found

    async def example(self) -> str | None:
        """A turn of the form that the environment shows, or a random call of its tools, if it has either.

        Texts of calls are words of the task and of what was shown first.
        """
        found: str | None = await self.order("example")
        if found is None and self._tools:
            known = f"{self._first.text} {' '.join(map(str, _fields(self._task).values()))}"
            return random_call(self._tools, self._rules.calls, known, self._random)
        return found

    async def finish(self) -> None:
        """Request the value of the episode."""
        self._value = float(await self.order("value"))

    def verdict(self) -> Verdict | None:
        """The value of the episode; None before `finish`."""
        if self._value is None:
            return None
        return self._scored(self._value, self._rewarded + self._value)

    def verdict_of(self, role: str) -> Verdict | None:
        """The sum of rewards of the other player, where the game has one; None before its end."""
        return None if self._other is None or role not in self._rules.roles else self._scored(self._other, self._other)

    def _scored(self, value: float, total: float) -> Verdict:
        return Verdict(value=value, solved=total >= self._rules.solved_at, explanation=f"rewards sum to {total:.4g}")

    def measures(self) -> Mapping[str, float]:
        """The sum of rewards of the turns, and numbers of calls where there are tools."""
        return {"rewarded": self._rewarded, **(self._counts if self._tools else {})}

    def account(self) -> Any:
        """The sum of rewards and the numbers of calls."""
        return [self._rewarded, dict(self._counts)]

    def recall(self, account: Any) -> None:
        """Go on from these."""
        self._rewarded, self._counts = float(account[0]), dict(account[1])

    async def close(self) -> None:
        """Give the worker back, or end it with the processes that the episode left behind."""
        try:
            if self._session is not None and self._session.alive and await self.order("close"):
                self._session.end()
        finally:
            await self._stack.aclose()

    async def order(self, order: str, **more: Any) -> Any:
        """The answer to an order. Raises `EnvironmentFailed`; what the worker kept is not used again then. Raises
        `AlarmStop` where a server is down.
        """
        assert self._session is not None, "the episode has not started"
        outcome = await self._session.call({"order": order, **more})
        if outcome.how != "ok":
            self._session.end()
            why = _plain(outcome.explanation)
            raise EnvironmentFailed(f"the environment '{self._rules.source}' failed in {order} ({outcome.how}): {why}")
        self._rules.stop_if_down(outcome.value)
        return outcome.value

    def _observed(self, seen: Mapping[str, Any]) -> Observation:
        legal = None if seen["legal"] is None else tuple(seen["legal"])
        text = seen["text"]
        shown = f"\n{text}\n" if isinstance(self._task.prompt, str) else text
        return Observation(text=shown, state_key=text, legal=legal)


def _fields(task: Task) -> dict[str, Any]:
    """What a task has by name."""
    own = {"prompt": task.prompt, "answer": task.answer, "domain": task.domain}
    return {**{name: value for name, value in own.items() if value}, **task.fields}


def _plain(explanation: str) -> str:
    """What a worker raised, without the name of an error that is written for users."""
    return explanation.removeprefix("UserError: ")
