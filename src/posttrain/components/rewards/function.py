"""Any Python function as a reward: ``file.py:name`` or ``package.module:name``.

The function may be plain, as ``f(completion, task)``, or written for TRL, verl, OpenRLHF, verifiers or OpenAI, sync or
async. The names of its parameters decide which: `posttrain.grading.conventions`.

Failures are recorded, never scored. A function that raises, returns NaN, or returns no score gives status ``error``,
with the line of the user's file. ``exit()`` inside the function counts as raising. None means that the function does
not apply to a completion: a `sum` leaves it out, and where no reward applies the rollout has status ``error``.

The function runs in worker processes (`posttrain.grading.workers`). If it hangs, crashes or runs out of memory, the
score in progress is recorded as an error with the reason, and the run continues. Compared with a call in the run's own
process:

- the file is executed again in each worker, and each worker has its own module variables, which are lost when it is
  replaced (`workers: 1` keeps a single worker);
- columns must be plain data;
- environment variables, working directory and import path are those of the run when scoring began;
- a plain function gets one completion at a time in a worker's main thread, so it may use signals;
- async functions run concurrently within a group.

``time_limit: null`` calls the function in the process of the run, where nothing can stop it.
"""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, PositiveFloat, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.conventions import (
    OF_GROUPS,
    Log,
    Signature,
    openai_values,
    openrlhf_values,
    plain_values,
    read_signature,
    trl_values,
    verifiers_values,
    verl_values,
)
from posttrain.grading.isolated import WIDE, Isolated
from posttrain.grading.results import as_score, from_openrlhf, with_notes
from posttrain.grading.user_function import UserFunction, explain, is_held, load_function, read_file
from posttrain.grading.workers import Limits, inside_worker
from posttrain.types import Group, Score, Trajectory

ON_THE_CLOCK = 10.0
"""Wall-clock limit of a call as a multiple of `time_limit`, for functions that wait."""
_CACHED = ("_loaded", "_traits", "_isolated")


@frozen
class Function(Reward):
    """Scores by a function of the user."""

    path: str
    """``file.py:name``, relative to the working directory, or ``package.module:name``."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the function."""
    correct_at: float = 1.0
    """Smallest result with status ``ok``; others are ``wrong``. A returned `Score` keeps its own status."""
    time_limit: PositiveFloat | None = 60.0
    """Seconds of processor time per completion; the wall-clock limit is ten times that. A function that scores a group
    in one call has the sum. None: no limit, and no worker process."""
    memory_limit: PositiveFloat | None = 8.0
    """Memory limit of a worker in GiB, its imports included; None for no limit."""
    workers: PositiveInt | None = None
    """Number of worker processes. None is one per processor, and more for async functions."""

    @field_validator("path")
    @classmethod
    def check_path(cls, path: str) -> str:
        """Refuse a path that is not FILE:NAME or MODULE:NAME."""
        source, _, name = path.rpartition(":")
        if not source or not name.isidentifier():
            raise PydanticCustomError("path", "a function is written file.py:name or package.module:name")
        if source == "__main__":
            raise PydanticCustomError(
                "path",
                "__main__ is another module in the worker processes; give the function itself, as in "
                "posttrain.run(..., reward={name}), or write file.py:{name}",
                {"name": name},
            )
        return path

    @property
    def user_code(self) -> tuple[str, ...]:
        """The function, unless this process was given it as an object."""
        return () if is_held(self.path) else (self.path,)

    def prepare(self) -> None:
        """Load the function and read its signature. Raises `UserError`."""
        _ = self._loaded if self._runs_here else self._traits

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of the file that holds the function (of that file only, not of what it imports)."""
        traits = self.traits() if self._runs_here else self._traits
        return {_relative(traits["file"]): traits["sha256"]} if traits["file"] else {}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Call the function for each trajectory, or once for the group. Raises `UserError` if it cannot be loaded."""
        if self._runs_here:
            return await self._score_here(group, context)
        traits = self._traits
        return await self._isolated.score(group, context, together=traits["together"], ids=traits["ids"])

    async def _score_here(self, group: Group, context: RewardContext) -> Sequence[Score]:
        function, signature = self._loaded
        if signature.convention in OF_GROUPS:
            return await self._score_group(function, signature, group, context)
        return await asyncio.gather(*(self._score(function, signature, trajectory) for trajectory in group))

    def pin(self, pinned: Mapping[str, Any]) -> None:
        """In a worker: load the function as the run began. Raises `UserError` if the file has changed since."""
        function = load_function(self.path, pinned.get("content"))
        if pinned.get("sha256", function.sha256) != function.sha256:
            raise UserError(f"reward function '{self.path}': {function.file} was changed since the run began")
        self.__dict__["_loaded"] = function, read_signature(function.call, self.arguments, self.path)

    def traits(self) -> dict[str, Any]:
        """In a worker: properties of the function that the run needs without loading it."""
        function, signature = self._loaded
        asynchronous = inspect.iscoroutinefunction(function.call) or inspect.iscoroutinefunction(
            getattr(function.call, "__call__", None)  # noqa: B004  an object with an async __call__
        )
        return {
            "file": function.file,
            "sha256": function.sha256,
            "asynchronous": asynchronous,
            "together": asynchronous or signature.convention in OF_GROUPS,
            "ids": signature.takes_rest or not {"trajectory", "completion_ids"}.isdisjoint(signature.names),
        }

    @property
    def _runs_here(self) -> bool:
        return self.time_limit is None or inside_worker()

    @cached_property
    def _isolated(self) -> Isolated:
        """Workers with the function; its file is read once, so that all of them run the same."""
        assert self.time_limit is not None, "without a limit there are no workers"
        memory = None if self.memory_limit is None else int(self.memory_limit * 1024)
        limits = Limits(cpu_seconds=self.time_limit, wall_seconds=ON_THE_CLOCK * self.time_limit, memory_mib=memory)
        pinned = {"content": read_file(self.path)}
        return Isolated(
            self, limits, preload=("posttrain.components.rewards.function",), pinned=pinned, workers=self.workers
        )

    @cached_property
    def _traits(self) -> dict[str, Any]:
        traits: dict[str, Any] = self._isolated.query("traits")
        self._isolated.pin(sha256=traits["sha256"])
        if traits["asynchronous"] and self.workers is None:
            self._isolated.widen(WIDE)
        return traits

    async def _score(self, function: UserFunction, signature: Signature, trajectory: Trajectory) -> Score:
        match signature.convention:
            case "verl":
                available = verl_values(trajectory)
            case "openai":
                available = openai_values(trajectory)
            case "verifiers":
                available = verifiers_values(trajectory)
            case _:
                available = plain_values(trajectory, signature)
        result, fault = await self._call(function, signature, available)
        return failure(fault) if fault else as_score(result, self.correct_at)

    async def _score_group(
        self, function: UserFunction, signature: Signature, group: Group, context: RewardContext
    ) -> Sequence[Score]:
        log = Log(len(group))
        if signature.convention == "openrlhf":
            available = openrlhf_values(group.trajectories)
        else:
            available = trl_values(group.trajectories, signature, context, log)
        results, fault = await self._call(function, signature, available)
        if signature.convention == "openrlhf" and not fault:
            results = from_openrlhf(results, log)
        if not fault:
            results, fault = _listed(results, len(group))
        scores = [failure(fault)] * len(group) if fault else [as_score(r, self.correct_at) for r in results]
        notes = [{name: values[n] for name, values in log.columns.items()} for n in range(len(group))]
        return [with_notes(score, {**note, **log.metrics}) for score, note in zip(scores, notes, strict=True)]

    async def _call(
        self, function: UserFunction, signature: Signature, available: Mapping[str, Any]
    ) -> tuple[Any, str]:
        """The result of one call, and a description of the failure or an empty string."""
        try:
            by_position, by_name = signature.arguments(available)
            result = function.call(*by_position, **{**by_name, **self.arguments})
            if inspect.isawaitable(result):
                result = await result
            return result, ""
        except (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # exit(), and libraries whose time limits do not raise an Exception
            return None, explain(error, function.file)

    @cached_property
    def _loaded(self) -> tuple[UserFunction, Signature]:
        function = load_function(self.path)
        return function, read_signature(function.call, self.arguments, self.path)

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the loaded function, so that a copy in another process loads its own."""
        return {name: value for name, value in self.__dict__.items() if name not in _CACHED}


def _listed(results: Any, count: int) -> tuple[list[Any], str]:
    """The results of a function that scores a group, and what is wrong with them or an empty string."""
    if results is None:
        return [None] * count, ""
    try:
        listed = list(results)
    except TypeError:
        return [], f"the function returned a {type(results).__name__}; a list with one number per completion is needed"
    if isinstance(results, str | bytes | Mapping) or len(listed) != count:
        kind = type(results).__name__
        return [], f"the function returned a {kind} of {len(listed)} for {count} completions; one number each is needed"
    return listed, ""


def _relative(file: str) -> str:
    """A file relative to the working directory, where it is inside it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
