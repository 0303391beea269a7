"""A reward that scores in worker processes, which can be killed: `posttrain.grading.workers`.

Each worker makes the reward from its settings, as a recipe file would, and scores the trajectories that it receives. A
call that exceeds its time or memory, or crashes its process, gives status ``error`` with the reason. Other calls are
not affected.
"""

import asyncio
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cache, reduce
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.workers import Limits, Outcome, Runner
from posttrain.types import Fact, Group, Message, Preference, Rated, Score, Segment, Task, Trajectory

PRELOAD = ("posttrain.grading.isolated",)
WIDE = 32
"""Number of workers for graders that mostly wait, such as asynchronous functions."""
_NUMBERS = ("stop_reason", "sample", "parent")
LOADING = 600.0
"""Seconds for a method call on a reward that was just loaded."""


class Isolated:
    """Scores by a reward in workers; created at the first score, and kept."""

    def __init__(
        self,
        reward: Reward,
        limits: Limits,
        *,
        preload: Sequence[str] = (),
        pinned: Mapping[str, Any] | None = None,
        workers: int | None = None,
    ) -> None:
        """`preload` are modules that workers have imported; `pinned` is passed to the reward's `pin` in each worker."""
        settings = TypeAdapter(Reward).dump_python(reward, mode="json")
        self._argument = {"settings": settings, "pinned": dict(pinned or {})}
        self.limits = limits
        self._runner = Runner(
            "posttrain.grading.isolated:open_reward",
            self._argument,
            limits=limits,
            preload=(*PRELOAD, *preload),
            workers=workers,
        )

    async def score(
        self, group: Group, context: RewardContext, *, together: bool = False, ids: bool = False
    ) -> list[Score]:
        """One score per trajectory, in order. `together` scores the group in one call, with the time limits multiplied
        by its size. `ids` sends token ids and log-probabilities too, not only texts.
        """
        packed = [pack_trajectory(t, ids=ids) for t in group]
        about = {"key": group.key, "step": context.step, "progress": context.progress}
        if together and packed:
            n = len(packed)
            limits = replace(
                self.limits, cpu_seconds=self.limits.cpu_seconds * n, wall_seconds=self.limits.wall_seconds * n
            )
            outcome = await self._runner.call({**about, "trajectories": packed}, limits)
            return scores_of(outcome, n)
        outcomes = await self._runner.run([{**about, "trajectories": [one]} for one in packed])
        return [scores_of(outcome, 1)[0] for outcome in outcomes]

    def query(self, name: str) -> Any:
        """Calls a method of the reward in a worker; returns its result. Raises `UserError` if it fails."""
        (outcome,) = self._runner.run_now(
            {"query": name}, limits=replace(self.limits, cpu_seconds=LOADING, wall_seconds=LOADING)
        )
        if outcome.how != "ok":
            raise UserError(outcome.explanation)
        return outcome.value

    def pin(self, **more: Any) -> None:
        """Add values that workers that start from now on pass to the reward's `pin`."""
        self._argument["pinned"] |= more

    def widen(self, workers: int) -> None:
        """Raise the number of concurrent calls to `workers`."""
        self._runner.workers = max(workers, self._runner.workers)

    async def outcomes(self, trajectories: Sequence[Trajectory]) -> list[tuple[Score, Outcome]]:
        """The score of each trajectory, scored alone, with the outcome of its call."""
        calls = [{"trajectories": [pack_trajectory(t, ids=True)]} for t in trajectories]
        outcomes = await self._runner.run(calls)
        return [(scores_of(outcome, 1)[0], outcome) for outcome in outcomes]


def scores_of(outcome: Outcome, count: int) -> list[Score]:
    """The scores of a call; errors if it failed."""
    if outcome.how != "ok":
        tried = f" (tried {outcome.attempts} times)" if outcome.attempts > 1 else ""
        return [failure(f"scoring failed ({outcome.how}): {outcome.explanation}{tried}")] * count
    return [unpack_score(item) for item in outcome.value]


def open_reward(argument: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """In a worker: make the reward; returns the function that answers a call."""
    reward = TypeAdapter(Reward).validate_python(argument["settings"])
    pin = getattr(reward, "pin", None)
    if argument["pinned"] and pin is not None:
        pin(argument["pinned"])
    reward.prepare()

    def answer(call: Mapping[str, Any]) -> Any:
        if "query" in call:
            return getattr(reward, call["query"])()
        group = Group(trajectories=tuple(map(unpack_trajectory, call["trajectories"])), key=call.get("key", ""))
        context = RewardContext(step=call.get("step", 0), progress=call.get("progress", 0.0))
        return [pack_score(score) for score in asyncio.run(reward.score(group, context))]

    return answer


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def pack_trajectory(trajectory: Trajectory, *, ids: bool = True) -> dict[str, Any]:
    """A trajectory as plain values; without `ids` its texts only."""
    task = {name: getattr(trajectory.task, name) for name in _names(Task)}
    task["preferences"] = [asdict(pair) for pair in trajectory.task.preferences]
    task["rated"] = [(rated.completion, rated.rating) for rated in trajectory.task.rated]
    segments = [{name: getattr(segment, name) for name in _names(Segment)} for segment in trajectory.segments]
    if not ids:
        segments = [{**s, "token_ids": None, "logp": None, "vectors": None} for s in segments]
    packed = {name: getattr(trajectory, name) for name in _NUMBERS}
    facts = [[f"{type(fact).__module__}:{type(fact).__qualname__}", asdict(fact)] for fact in trajectory.facts]
    return {**packed, "facts": facts, "task": task, "segments": segments}


def unpack_trajectory(packed: Mapping[str, Any]) -> Trajectory:
    """The trajectory of packed values."""
    task = dict(packed["task"])
    task["preferences"] = tuple(Preference(**pair) for pair in task["preferences"])
    task["rated"] = tuple(Rated(completion=completion, rating=rating) for completion, rating in task["rated"])
    if not isinstance(task["prompt"], str):
        task["prompt"] = tuple(Message(role=m["role"], content=m["content"]) for m in task["prompt"])
    segments = [
        Segment(
            **{**segment, "token_ids": np.zeros(0, np.int64) if segment["token_ids"] is None else segment["token_ids"]}
        )
        for segment in packed["segments"]
    ]
    others = {name: packed[name] for name in _NUMBERS}
    facts = tuple(_unpack_fact(name, values) for name, values in packed["facts"])
    return Trajectory(task=Task(**task), segments=tuple(segments), facts=facts, **others)


def _unpack_fact(name: str, values: Mapping[str, Any]) -> Fact:
    """The fact of packed values, of the class with that name."""
    module, _, qualname = name.partition(":")
    kind: type[Fact] = reduce(getattr, qualname.split("."), importlib.import_module(module))  # type: ignore[assignment]
    return TypeAdapter(kind).validate_python(values)


def pack_score(score: Score) -> dict[str, Any]:
    """A score as plain values."""
    packed = {name: getattr(score, name) for name in _names(Score) if name != "parts"}
    return {**packed, "value": float(score.value), "parts": {n: pack_score(part) for n, part in score.parts.items()}}


def unpack_score(packed: Mapping[str, Any]) -> Score:
    """The score of packed values; one that is not finite gets the status ``error``."""
    parts = {name: unpack_score(part) for name, part in packed["parts"].items()}
    score = Score(**{**packed, "parts": parts, "spans": tuple(tuple(span) for span in packed["spans"])})
    return score if score.status == "error" or math.isfinite(score.value) else failure("a score without a value")
