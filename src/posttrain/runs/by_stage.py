"""What each stage of a recipe gained and lost on each set of held-out tasks.

A set is a domain of the held-out tasks, such as the sets of ``--sets``. Greedy answers before and after a stage are to
the same tasks, so a change is a paired difference, and has the tasks that it gained and lost. Over several runs of one
recipe, which differ in their seeds, the unit is the run.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from posttrain.errors import UserError
from posttrain.runs.store import RunStore
from posttrain.runs.summary import correct_at
from posttrain.statistics.intervals import mean, wilson
from posttrain.statistics.paired import paired_difference

ALL: Final = "all"
"""Name of the set of all held-out tasks."""
Right = Mapping[str, bool]
"""By task, whether its greedy answer is correct."""


def stages_of(folders: Sequence[Path]) -> dict[str, Any]:
    """For each evaluation at the end of a stage, and before the first, each set's accuracy and its change.

    Raises `UserError` for runs of different stages or sets.
    """
    runs = [_right_by_stage(folder) for folder in folders]
    shapes = [[(name, sorted(sets)) for name, sets in run.items()] for run in runs]
    unlike = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if unlike is not None:
        raise UserError(
            f"{folders[unlike]} has other stages or sets than {folders[0]}; give runs of one recipe that have ended"
        )
    names = list(runs[0])
    stages = []
    for place, name in enumerate(names):
        sets = {}
        for of in runs[0][name]:
            after = [run[name][of] for run in runs]
            before = [run[names[place - 1]][of] for run in runs] if place else None
            sets[of] = _one(before, after) if len(runs) == 1 else _several(before, after)
        stages.append({"name": name, "sets": sets})
    return {"runs": [str(folder) for folder in folders], "stages": stages}


def _right_by_stage(folder: Path) -> dict[str, dict[str, Right]]:
    """By the name of an evaluation, and by set, which tasks were answered correctly. Evaluations within stages and
    stages that ended without one are left out.
    """
    with RunStore.open(folder, reading=True) as store:
        recipe = store.recipe_tree()
        wanted = ["before", *recipe["stages"]]
        found = {}
        for entry in store.evaluations():
            if entry["name"] in wanted and entry["tasks"]:
                columns = ["task_key", "domain", "reward"]
                where = "sample = 0 AND score_status <> 'error' AND reward IS NOT NULL"
                rows = store.evaluation_rows(entry["step"], entry["name"], columns, where)
                found[entry["name"]] = _by_set(rows, correct_at(recipe))
    if len(found) < 2:
        raise UserError(
            f"{folder} has {len(found)} evaluations of answers before and after stages, and two are needed; let the "
            "run end, or give it a verifier (evaluation.verifier)"
        )
    return found


def _by_set(rows: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, Right]:
    sets: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for row in rows:
        sets[row["domain"] or ALL][row["task_key"]] = row["reward"] >= threshold
    every = {key: right for own in sets.values() for key, right in own.items()}
    return {**(dict(sorted(sets.items())) if set(sets) != {ALL} else {}), ALL: every}


def _one(before: Sequence[Right] | None, after: Sequence[Right]) -> dict[str, Any]:
    """Accuracy and change of one run: the unit is the task."""
    [right] = after
    correct = sum(right.values())
    found: dict[str, Any] = {
        "tasks": len(right),
        "accuracy": correct / len(right),
        "interval": list(wilson(correct, len(right))),
    }
    if before is not None:
        shared = sorted(right.keys() & before[0].keys())
        if shared:
            change = paired_difference([before[0][key] for key in shared], [right[key] for key in shared])
            found["change"] = {
                "value": change.value,
                "gained": change.gained,
                "lost": change.lost,
                "interval": list(change.interval),
                "p_value": change.p_value,
            }
    return found


def _several(before: Sequence[Right] | None, after: Sequence[Right]) -> dict[str, Any]:
    """Means over runs, with Student's t."""
    accuracies = [sum(right.values()) / len(right) for right in after]
    center = mean(accuracies)
    found: dict[str, Any] = {
        "tasks": sum(map(len, after)) / len(after),
        "accuracy": center.value,
        "interval": list(center.interval),
    }
    if before is not None:
        pairs = [[(old[key], new[key]) for key in new if key in old] for old, new in zip(before, after, strict=True)]
        changes = [sum(b - a for a, b in own) / max(len(own), 1) for own in pairs]
        change = mean(changes)
        found["change"] = {
            "value": change.value,
            "gained": sum(b and not a for own in pairs for a, b in own) / len(pairs),
            "lost": sum(a and not b for own in pairs for a, b in own) / len(pairs),
            "interval": list(change.interval),
        }
    return found
