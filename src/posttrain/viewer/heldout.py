"""Held-out tasks by evaluations: which were solved when."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from posttrain.runs.samples import scored
from posttrain.runs.store import RunStore
from posttrain.runs.summary import correct_at
from posttrain.viewer import questions
from posttrain.viewer.listing import evaluations
from posttrain.viewer.texts import losses

Page = dict[str, Any]
Order = Literal["changed", "worst", "key"]
ORDERS: Mapping[str, str] = {"changed": "most changes first", "worst": "least solved first", "key": "by name"}
assert tuple(ORDERS) == get_args(Order), "one label for each order"
PER_PAGE = 100


def heldout(name: str, folder: Path, order: Order = "changed", *, page: int = 1) -> Page:
    """A row of ``cells`` for each task, one for each evaluation: ``right``, ``wrong``, ``unscored`` or empty.

    ``texts`` are the held-out demonstrations and pairs, each with its loss at each evaluation.
    """
    with RunStore.open(folder, reading=True) as store:
        columns = evaluations(store.evaluations())
        threshold = correct_at(store.recipe_tree())
    place = {(own["step"], own["name"]): i for i, own in enumerate(columns)}
    rows: dict[str, Page] = {}
    for answer in questions.heldout(folder):
        at = place.get((answer["step"], answer["evaluation"]))
        if at is None:
            continue  # of an evaluation that the journal does not have: a power cut
        key = answer["task_key"]
        row = rows.setdefault(key, {"key": key, "prompt": answer["prompt"], "cells": [""] * len(columns)})
        own = scored(answer, threshold)
        row["cells"][at] = "unscored" if not own["has_score"] else "right" if own["right"] else "wrong"
    ordered = sorted(rows.values(), key=lambda row: (*_rank(row["cells"], order), row["key"]))
    texts, part = losses(folder, columns), slice((page - 1) * PER_PAGE, page * PER_PAGE)
    return {
        "run": name,
        "columns": columns,
        "rows": ordered[part],
        "texts": texts[part],
        "in_all_texts": len(texts),
        "order": order,
        "orders": ORDERS,
        "in_all": len(ordered),
        "pages": {"page": page, "last": max(1, -(-max(len(ordered), len(texts)) // PER_PAGE))},
    }


def _rank(cells: Sequence[str], order: Order) -> tuple[int, ...]:
    """The place of a row: the fewest first."""
    known = [cell for cell in cells if cell in ("right", "wrong")]
    changes = sum(a != b for a, b in pairwise(known))
    right = known.count("right")
    return {"changed": (-changes, right), "worst": (right, -len(known)), "key": ()}[order]
