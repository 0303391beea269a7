"""Groups as JSON, for those that a later step learns from: they are in the checkpoint until then.

A group is stored with the key of its task, not with the task, unless it was born in the run. Arrays are stored by their
bytes, so that a resumed run has the same numbers.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache, reduce
from typing import Any

from pydantic import TypeAdapter

from posttrain.components.rollouts import Earlier
from posttrain.datasets.evolving import born_task, made_of
from posttrain.stages.memory import array_of, packed_array
from posttrain.types import Fact, Group, Score, Segment, Task, Trajectory

_ARRAYS = ("token_ids", "logp", "entropy", "vectors", "allowed")
_NUMBERS = ("stop_reason", "sample", "parent", "failure")
_SCORE: TypeAdapter[Score | None] = TypeAdapter(Score | None)


def pack_groups(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The groups as JSON."""
    return [
        {"key": g.key, "pool": list(g.pool), "task": _task_of(g).key, "rollouts": [_pack(t) for t in g]} | _born(g)
        for g in groups
    ]


def unpack_groups(packed: Sequence[Mapping[str, Any]], tasks: Sequence[Task], *, age: int | None) -> list[Group]:
    """Groups of `pack_groups`, sampled `age` steps ago, which is a fact of each rollout; None for no such fact.

    A group whose task is not among the tasks any more is left out.
    """
    known = {task.key: task for task in tasks} if packed else {}
    known |= {group["task"]: born_task(group["born"]) for group in packed if "born" in group}
    return [
        Group(
            key=group["key"],
            pool=tuple(group["pool"]),
            trajectories=tuple(_unpack(item, known[group["task"]], age) for item in group["rollouts"]),
        )
        for group in packed
        if group["task"] in known
    ]


def _born(group: Group) -> dict[str, Any]:
    """The task itself, if it was born in the run."""
    task = _task_of(group)
    return {"born": made_of(task)} if "lineage" in task.fields else {}


def _task_of(group: Group) -> Task:
    return group.trajectories[0].task


def _pack(trajectory: Trajectory) -> dict[str, Any]:
    segments = [
        {
            field.name: packed_array(value) if field.name in _ARRAYS else value
            for field in fields(Segment)
            if (value := getattr(segment, field.name)) is not None
        }
        for segment in trajectory.segments
    ]
    facts = [[f"{type(fact).__module__}:{type(fact).__qualname__}", asdict(fact)] for fact in trajectory.facts]
    score = _SCORE.dump_python(trajectory.score, mode="json")
    return {name: getattr(trajectory, name) for name in _NUMBERS} | {
        "score": score,
        "facts": facts,
        "segments": segments,
    }


def _unpack(packed: Mapping[str, Any], task: Task, age: int | None) -> Trajectory:
    arrays = [{n: array_of(v) if n in _ARRAYS else v for n, v in segment.items()} for segment in packed["segments"]]
    facts = tuple(_fact(name, values) for name, values in packed["facts"])
    return Trajectory(
        task=task,
        segments=tuple(Segment(**segment) for segment in arrays),
        score=_SCORE.validate_python(packed["score"]),
        facts=facts if age is None else (*(f for f in facts if not isinstance(f, Earlier)), Earlier(age=age)),
        **{name: packed[name] for name in _NUMBERS},
    )


def _fact(name: str, values: Mapping[str, Any]) -> Fact:
    """The fact of the class with that name."""
    return _reader(name).validate_python(values)


@cache
def _reader(name: str) -> TypeAdapter[Fact]:
    """What makes the facts of a class; there are few classes, and many facts."""
    module, _, qualname = name.partition(":")
    kind: type[Fact] = reduce(getattr, qualname.split("."), importlib.import_module(module))  # type: ignore[assignment]
    return TypeAdapter(kind)
