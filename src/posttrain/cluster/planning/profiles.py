"""A profile: the calls of a step and how long each takes where, as JSON.

    {"iterations": 5, "capacity": 80000000000,
     "calls": [{"name": "generate", "model": "actor", "candidates": [
                   {"devices": [0, 1], "seconds": 4.0, "layout": [1, 1, 2], "static": 14000000, "active": 9000000}]},
               {"name": "train", "model": "actor", "trains": true, "after": ["generate"], "candidates": [...]}],
     "transfers": [{"model": "actor", "source": [1, 2, 1], "target": [1, 1, 2], "seconds": 0.5}]}

A layout has the degrees of pipeline, data and tensor parallelism. Without transfers, weights move in no time; with
some, every one that a plan needs must be among them. With ``"barrier": true`` an iteration begins when the one before
has ended; ``other`` are its seconds without a call. A profile that `posttrain cluster profile` measured has its
``recipe``, and a plan of it can be executed, with the ``sharding`` that it was measured with.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from posttrain.cluster.planning.calls import Call, Candidate, Layout, Plan
from posttrain.cluster.planning.search import Accept, Found, Problem, brute_force, metropolis, symmetric
from posttrain.errors import UserError
from posttrain.errors.foreign import guard, parse_json, read_text

FEW = 20_000
"""Plans up to which all are tried."""


class _Candidate(TypedDict):
    devices: list[int]
    seconds: float
    layout: NotRequired[Layout]
    static: NotRequired[int]
    active: NotRequired[int]


class _Call(TypedDict):
    name: str
    model: str
    candidates: list[_Candidate]
    after: NotRequired[list[str]]
    trains: NotRequired[bool]


class _Transfer(TypedDict):
    model: str
    source: Layout
    target: Layout
    seconds: float


class _Profile(TypedDict):
    calls: list[_Call]
    transfers: NotRequired[list[_Transfer]]
    capacity: NotRequired[int]
    iterations: NotRequired[int]
    barrier: NotRequired[bool]
    other: NotRequired[float]
    recipe: NotRequired[dict[str, Any]]
    sharding: NotRequired[Literal["none", "fsdp"]]
    processes: NotRequired[int]
    steps: NotRequired[int]
    """Of which the seconds are medians."""


_PROFILE = TypeAdapter(_Profile)


def _read(path: Path) -> _Profile:
    with guard(f"{path} is no profile of calls"):
        return _PROFILE.validate_python(parse_json(read_text(path)))


def read_profile(path: Path) -> Problem:
    """The problem of a file. Raises `UserError` for what is no profile."""
    found = _read(path)
    calls = [
        Call(
            name=call["name"],
            model=call["model"],
            after=tuple(call.get("after", ())),
            trains=call.get("trains", False),
            candidates=[_candidate(own) for own in call["candidates"]],
        )
        for call in found["calls"]
    ]
    names = [call.name for call in calls]
    for call in calls:
        if not call.candidates:
            raise UserError(f"{path}: the call '{call.name}' has no candidate")
        if unknown := [name for name in call.after if name not in names]:
            raise UserError(
                f"{path}: '{call.name}' comes after '{unknown[0]}', which is no call; known: {', '.join(names)}"
            )
    if not calls or len(set(names)) < len(names):
        raise UserError(f"{path}: a profile has calls, each of a name of its own; got {', '.join(names) or 'none'}")
    transfers = None
    if "transfers" in found:
        transfers = {(t["model"], t["source"], t["target"]): t["seconds"] for t in found["transfers"]}
    return Problem(
        calls=calls,
        transfers=transfers,
        capacity=found.get("capacity"),
        iterations=found.get("iterations", 5),
        barrier=found.get("barrier", False),
        other=found.get("other", 0.0),
    )


def placed_recipe(path: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe that executes a plan of a measured profile, as `best_plans` describes it.

    Raises `UserError` for a profile that was not measured.
    """
    found = _read(path)
    if "recipe" not in found or "processes" not in found:
        raise UserError(f"{path} has no recipe to execute; measure it with posttrain cluster profile RECIPE")
    calls = {name: own["devices"] for name, own in plan["calls"].items()}
    cluster = {"kind": "placed", "processes": found["processes"], "calls": calls}
    if found.get("sharding", "none") != "none":
        cluster["sharding"] = found["sharding"]
    return {**found["recipe"], "cluster": cluster}


def _candidate(own: _Candidate) -> Candidate:
    return Candidate(
        devices=frozenset(own["devices"]),
        seconds=own["seconds"],
        layout=own.get("layout", (1, 1, 1)),
        static=own.get("static", 0),
        active=own.get("active", 0),
    )


def best_plans(
    problem: Problem, *, seed: int, proposals: int, most: int = 3, accept: Accept = "relative"
) -> dict[str, Any]:
    """The best plans, the first with shares of idle time, and the best that gives all calls the same devices."""
    count = 1
    for call in problem.calls:
        count *= len(call.candidates)
    walk = metropolis(problem, seed=seed, proposals=proposals, keep=most, accept=accept)
    if count <= FEW:
        best = brute_force(problem)
        walk = [best, *(found for found in walk if found.plan != best.plan)][:most]
    try:
        same = _described(problem, symmetric(problem))
    except UserError:
        same = None
    return {
        "tried": "all" if count <= FEW else f"{proposals} proposals",
        "plans": count,
        "best": [_described(problem, found) for found in walk],
        "idle": idle(problem, walk[0].plan),
        "symmetric": same,
    }


def _described(problem: Problem, found: Found) -> dict[str, Any]:
    placed = {}
    for call in problem.calls:
        own = call.candidates[found.plan[call.name]]
        placed[call.name] = {"devices": sorted(own.devices), "layout": list(own.layout), "seconds": own.seconds}
    return {"seconds": found.seconds, "bytes": found.bytes, "calls": placed}


def idle(problem: Problem, plan: Plan) -> Mapping[int, float]:
    """The share of the time in which each device has no call."""
    whole = problem.weighed(plan)[0]
    busy: dict[int, float] = {d: 0.0 for call in problem.calls for own in call.candidates for d in own.devices}
    for call in problem.calls:
        own = call.candidates[plan[call.name]]
        for device in own.devices:
            busy[device] += own.seconds * problem.iterations
    return {device: 1.0 - seconds / whole for device, seconds in sorted(busy.items())}
