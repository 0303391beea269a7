"""How long each call of a recipe's step takes on each mesh of processes, measured by running it there."""

import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console

from posttrain.cluster import Cluster
from posttrain.cluster.placed import CALLS, Placed
from posttrain.cluster.planning.accelerators import meshes
from posttrain.cluster.planning.calls import Layout
from posttrain.errors import UserError
from posttrain.errors.temporary import make_temporary, remove_temporary
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.store import RunStore

PREFIX: Final = "seconds_"


def profile(
    recipe: Recipe, processes: int, steps: int, say: Callable[[str], None], sharding: Literal["none", "fsdp"] = "none"
) -> dict[str, Any]:
    """A profile (`posttrain.cluster.planning.profiles`) from runs of some steps, all calls on one mesh in each.

    Seconds of a call are the median of the steps after the first, with those of the weights that it waits for; where a
    sharded model is trained, also those in which the owners hand their weights over. Bytes are those of weights, and of
    gradients where a call trains; of a sharded model those of one process: its rows where it scores, and where it
    trains what the fullest process has between two steps, moments and masters included.
    """
    calls: dict[str, list[dict[str, Any]]] = {}
    moved: dict[tuple[str, Layout], float] = {}
    other = []
    for mesh in meshes(processes):
        every = measured(recipe, Placed(processes=processes, calls=_all_on(recipe, mesh), sharding=sharding), steps)
        rows, layout = every[1:], (1, len(mesh), 1)
        seconds = _calls_of(rows)
        for call, spent in seconds.items():
            kind, _, role = call.partition(" ")
            static, active = _bytes(every, kind, role, len(mesh) if sharding == "fsdp" else 1)
            own = {"devices": sorted(mesh), "seconds": spent, "layout": layout, "static": static, "active": active}
            calls.setdefault(call, []).append(own)
            moved[role, layout] = max(moved.get((role, layout), 0.0), _median(rows, f"{PREFIX}weights_{role}"))
        whole = _median(rows, "seconds_total")
        other.append(max(0.0, whole - sum(seconds.values())))
        say(f"processes {', '.join(map(str, sorted(mesh)))}: {whole:.3f} s a step")
    if not calls:
        raise UserError("no call of a model was seen: placements are of stages that sample and learn")
    return {
        "iterations": 5,
        "barrier": True,
        "other": statistics.median(other),
        "processes": processes,
        "steps": steps,
        "sharding": sharding,
        "recipe": to_tree(recipe),
        "calls": [_call(name, sorted(calls), found) for name, found in sorted(calls.items(), key=_order)],
        "transfers": [
            {"model": role, "source": list(source), "target": list(target), "seconds": spent}
            for (role, target), spent in moved.items()
            for source in sorted({layout for _, layout in moved})
        ],
    }


def _bytes(every: Sequence[Mapping[str, Any]], kind: str, role: str, parts: int) -> tuple[int, int]:
    """Of one process: what a call's model takes there, and what is there besides while the call goes on."""

    def most(name: str) -> int:
        return int(max(row.get(f"{name}_{role}", 0.0) for row in every))

    size = most("weight_bytes")
    if parts == 1 or kind == "generate":
        return size, size if kind == "train" else 0
    if kind == "score":
        return -(-size // parts), 0
    return most("part_bytes"), most("part_gradients")


def _all_on(recipe: Recipe, mesh: frozenset[int]) -> Mapping[str, tuple[int, ...]]:
    return {f"{call} {role}": tuple(sorted(mesh)) for call in CALLS for role in recipe.models}


def measured(recipe: Recipe, cluster: Cluster, steps: int) -> list[dict[str, Any]]:
    """The timing of the steps of a run."""
    folder = make_temporary("profile")
    try:
        measured = replace(recipe, cluster=cluster, evaluation=replace(recipe.evaluation, every=0, early=0))
        view = LiveView(lines=True, console=Console(file=io.StringIO()))
        run, _ = start(measured, Path(folder), view, most_steps=steps)
        with RunStore.open(run) as store:
            rows = [row for row in store.timing() if row.get("stage_step")]
    finally:
        remove_temporary(folder)
    if len(rows) < 2:
        raise UserError("the recipe has fewer than two steps, and the first is not measured; give it more")
    return rows


def _calls_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median seconds of each call that the steps have."""
    names = {key for row in rows for key in row}
    found = {}
    for call in CALLS:
        for key in sorted(names):
            if key.startswith(f"{PREFIX}{call}_"):
                found[f"{call} {key.removeprefix(f'{PREFIX}{call}_')}"] = _median(rows, key)
    return found


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return statistics.median(float(row.get(key, 0.0)) for row in rows)


def _call(name: str, names: Sequence[str], found: list[dict[str, Any]]) -> dict[str, Any]:
    """A call of the profile: the policy generates, all others score, then what is trained is trained."""
    kind, _, role = name.partition(" ")
    after: list[str] = []
    if kind == "train":
        after = [other for other in names if not other.startswith("train ")]
    elif name != "generate policy":
        after = [other for other in names if other == "generate policy"]
    return {"name": name, "model": role, "trains": kind == "train", "after": after, "candidates": found}


def _order(item: tuple[str, Any]) -> tuple[int, bool, str]:
    kind, _, role = item[0].partition(" ")
    return CALLS.index(kind), role != "policy", role
