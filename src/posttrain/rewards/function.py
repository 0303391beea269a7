"""Any Python function as a reward: ``file.py:name`` or ``package.module:name``.

The function may be plain (``f(completion, task)`` and the like), or written for TRL or for verl, sync or async; which
one it is is told from the names of its parameters: `posttrain.rewards._conventions`.

What goes wrong is recorded, never scored: a function that raises, returns NaN, or returns something else than a
judgement gives status ``error``, with the line of the user's file. So does None, which says that the function does not
apply to this completion. ``exit()`` inside the function counts as raising.

A plain function runs in the thread and process of the run, one completion after another in order; only async functions
run side by side. That keeps results in order and lets the function use signals, but a function that never returns
holds up the run: limits on time need a worker that can be killed, which this kind does not have.
"""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.rewards import Reward, RewardContext, failure
from posttrain.rewards._conventions import Log, Signature, plain_values, read_signature, trl_values, verl_values
from posttrain.rewards._results import NOT_APPLICABLE, as_score, with_notes
from posttrain.rewards._user_function import UserFunction, explain, load_function
from posttrain.types import Group, Score, Trajectory


@frozen
class Function(Reward):
    """Judges by a function of the user's."""

    path: str
    """``file.py:name``, relative to the working directory, or ``package.module:name``."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Settings of the function's own, passed by keyword."""
    correct_at: float = 1.0
    """A result of at least this has status ``ok``, a smaller one ``wrong``; a returned `Score` keeps its own."""

    @field_validator("path")
    @classmethod
    def check_path(cls, path: str) -> str:
        """Refuse what is not spelled as a function."""
        source, _, name = path.rpartition(":")
        if not source or not name.isidentifier():
            raise PydanticCustomError("path", "a function is written file.py:name or package.module:name")
        return path

    def prepare(self) -> None:
        """Load the function and tell its signature. Raises `UserError`."""
        _ = self._loaded

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of the file that holds the function (of that file only, not of what it imports)."""
        function, _ = self._loaded
        return {_relative(function.file): function.sha256} if function.file else {}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Call the function for each trajectory, or once for the group. Raises `UserError` if it cannot be loaded."""
        function, signature = self._loaded
        if signature.convention == "trl":
            return await self._judge_group(function, signature, group, context)
        return await asyncio.gather(*(self._judge(function, signature, trajectory) for trajectory in group))

    async def _judge(self, function: UserFunction, signature: Signature, trajectory: Trajectory) -> Score:
        verl = signature.convention == "verl"
        available = verl_values(trajectory) if verl else plain_values(trajectory, signature)
        result, fault = await self._call(function, signature, available)
        return failure(fault) if fault else as_score(result, self.correct_at)

    async def _judge_group(
        self, function: UserFunction, signature: Signature, group: Group, context: RewardContext
    ) -> Sequence[Score]:
        log = Log(len(group))
        available = trl_values(group.trajectories, signature, context, log)
        results, fault = await self._call(function, signature, available)
        if not fault:
            results, fault = _listed(results, len(group))
        scores = [failure(fault)] * len(group) if fault else [as_score(r, self.correct_at) for r in results]
        notes = [{name: values[n] for name, values in log.columns.items()} for n in range(len(group))]
        return [with_notes(score, {**note, **log.metrics}) for score, note in zip(scores, notes, strict=True)]

    async def _call(
        self, function: UserFunction, signature: Signature, available: Mapping[str, Any]
    ) -> tuple[Any, str]:
        """The result of one call, and what went wrong if something did."""
        try:
            by_position, by_name = signature.arguments(available)
            result = function.call(*by_position, **{**by_name, **self.arguments})
            if inspect.isawaitable(result):
                result = await result
            return result, ""
        except (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # exit(), and libraries whose time limits are no Exception
            return None, explain(error, function.file)

    @cached_property
    def _loaded(self) -> tuple[UserFunction, Signature]:
        function = load_function(self.path)
        return function, read_signature(function.call, self.arguments, self.path)

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the loaded function, so that a copy in another process loads its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_loaded"}


def _listed(results: Any, count: int) -> tuple[list[Any], str]:
    """The results of a function that judges a group, and what is wrong with them if something is."""
    if results is None:
        return [], NOT_APPLICABLE
    try:
        listed = list(results)
    except TypeError:
        return [], f"the function returned a {type(results).__name__}; a list with one number a completion is needed"
    if isinstance(results, str | bytes | Mapping) or len(listed) != count:
        kind = type(results).__name__
        return [], f"the function returned a {kind} of {len(listed)} for {count} completions; one number each is needed"
    return listed, ""


def _relative(file: str) -> str:
    """A file as seen from the working directory, where it is inside it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
