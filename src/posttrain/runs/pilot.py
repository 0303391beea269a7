"""Power of a comparison before it is run, from the std of a paired difference, stated or seen in earlier runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.errors.foreign import guard, read_json
from posttrain.runs.amounts import size, unit_of
from posttrain.statistics.power import detectable, power, seeds_for
from posttrain.statistics.repeated import repeated_difference

ALPHA = 0.05
SEEDS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
"""Numbers of seeds that a plan lists."""


def observed_stds(folder: Path) -> dict[str, float]:
    """By measure, the largest std of a paired difference that an earlier comparison saw; empty without one."""
    path = folder / "comparison.json"
    if not path.is_file():
        return {}
    result, found = read_json(path), dict[str, float]()
    with guard(f"{path} is not the result of a comparison"):
        base, *others = result["contenders"]
        for name in result["measures"]:
            for row in others:
                shared = sorted(set(row["seeds"]) & set(base["seeds"]))
                first, second = (
                    [own[name]["values"][own["seeds"].index(seed)] for seed in shared] for own in (base, row)
                )
                std = repeated_difference(first, second).std if shared else None
                found[name] = max(found.get(name, 0.0), std or 0.0)
    return {name: std for name, std in found.items() if std > 0}


def announce(
    stds: Mapping[str, float], measures: Sequence[str], seeds: int, others: int, report: Callable[[str], None]
) -> None:
    """Report what the seeds can find, where the std of a difference is known."""
    for name in measures:
        if name in stds and seeds > 1:
            found = detectable(stds[name], seeds, level=_level(len(measures) * others))
            report(
                f"with {seeds} seeds a difference in {name} of {size(found, unit_of(name))} is found 4 times in 5 "
                f"(std of a difference {size(stds[name], unit_of(name))})"
            )


def plan(stds: Mapping[str, float], measures: Sequence[str], others: int, find: float | None) -> dict[str, Any]:
    """For each measure: the difference that a number of seeds finds 4 times in 5; with `find`, the seeds it needs.

    Tests of `others` recipes and several measures are taken at the first step of Holm's procedure, the strictest.
    """
    level = _level(len(measures) * others)
    found: dict[str, Any] = {}
    for name in measures:
        if name not in stds:
            raise UserError(
                f"the std of a difference in {name} is not known; state it with --std, or name an earlier comparison "
                f"that measured it with --pilot; {nearest(name, list(stds))}"
            )
        std = stds[name]
        found[name] = {
            "std": std,
            "level": level,
            "detectable": {seeds: detectable(std, seeds, level=level) for seeds in SEEDS},
        }
        if find is not None:
            needed = seeds_for(find, std, level=level)
            found[name]["find"] = {
                "difference": find,
                "seeds": needed,
                "power": None if needed is None else power(find, std, needed, level),
            }
    return found


def _level(tests: int) -> float:
    """Level of each of several intervals at the first step of Holm's procedure."""
    return 1 - ALPHA / max(1, tests)
