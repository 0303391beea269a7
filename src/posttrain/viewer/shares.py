"""Runs with different shares of domains beside one another: the mixtures that `posttrain diagnose mixture` reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.runs.store import RunStore
from posttrain.viewer import planes
from posttrain.viewer.listing import or_problem

Page = dict[str, Any]

MOST_RUNS = 200
"""Runs that are read, the first of the listing."""


def mixtures(found: Mapping[str, Path], first: str) -> Page | None:
    """All evaluated runs with a curriculum of shares and the tasks of `first`; None if that has no such curriculum."""
    own = _row(first, found[first])
    if own is None:
        return None
    rows = []
    for name, folder in list(found.items())[:MOST_RUNS]:
        nothing: Page | None = None
        row, _ = or_problem(lambda folder=folder, name=name: _row(name, folder), nothing)  # type: ignore[misc]
        if row is not None and row["accuracy"] is not None and row["tasks"] == own["tasks"]:
            rows.append(row)
    domains = sorted({domain for row in rows for domain in row["shares"]})
    for row in rows:
        given = row["shares"] or dict.fromkeys(domains, 1.0)
        total = sum(given.values())
        row["shares"] = {domain: given.get(domain, 0.0) / total for domain in domains}
        row["text"] = ", ".join(f"{domain} {share:.0%}" for domain, share in row["shares"].items())
    rows.sort(key=lambda row: -row["accuracy"])
    return {"rows": rows, "domains": domains, "svg": planes.mixtures(rows)} if rows else None


def _row(name: str, folder: Path) -> Page | None:
    """Shares and accuracy of a run; None for one without a curriculum of shares, empty shares for equal ones."""
    with RunStore.open(folder, reading=True) as store:
        tree, evaluations = store.recipe_tree(), store.evaluations()
    stages = tree.get("stages", {})
    given = [stage.get("curriculum") for stage in stages.values() if isinstance(stage, Mapping)]
    kinds = [own if isinstance(own, Mapping) else {"kind": own} for own in given if own is not None]
    own = next((kind for kind in kinds if kind.get("kind") == "by_share"), None)
    if own is None:
        return None
    stated = own.get("shares")
    numbers = stated.items() if isinstance(stated, Mapping) else ()
    shares = {str(domain): float(share) for domain, share in numbers if isinstance(share, int | float) and share > 0}
    accuracy = [e["accuracy"] for e in evaluations if e.get("accuracy") is not None]
    return {"run": name, "tasks": tree.get("tasks"), "shares": shares, "accuracy": accuracy[-1] if accuracy else None}
