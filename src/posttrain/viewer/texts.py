"""Held-out demonstrations and pairs, which a run is measured on by their loss: by evaluation, and token by token."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.runs.store import GIVEN, RunStore
from posttrain.runs.token_text import TokenTexts
from posttrain.viewer import questions
from posttrain.viewer.database import Row
from posttrain.viewer.facts import facts
from posttrain.viewer.tokens import MOST_TOKENS, colourings, marked

Page = dict[str, Any]
MOST_TEXTS = 8
"""Of a task that are shown."""


def losses(folder: Path, columns: Sequence[Mapping[str, Any]]) -> list[Page]:
    """A row of ``cells`` for each held-out text, the least likely one first: nats a token at each evaluation."""
    place = {(own["step"], own["name"]): i for i, own in enumerate(columns)}
    rows: dict[tuple[str, int], Page] = {}
    for text in questions.given(folder):
        at = place.get((text["step"], text["evaluation"].removesuffix(GIVEN)))
        if at is None:
            continue  # of an evaluation that the journal does not have: a power cut
        key, number = text["task_key"], text["sample"]
        empty = {"key": key, "sample": number, "prompt": text["prompt"], "info": facts(text["info"])}
        row = rows.setdefault((key, number), {**empty, "cells": [None] * len(columns)})
        row["cells"][at] = text["nats"]
    return sorted(rows.values(), key=lambda row: (-_last(row["cells"]), row["key"], row["sample"]))


def of_task(folder: Path, task: str) -> list[Page]:
    """The held-out texts of a task, each as it was measured at the first and at the last evaluation.

    Of each the ``segments`` with their pieces, coloured by the surprise of each token, and its ``nats`` a token.
    """
    rows = questions.given_of(folder, task, most=MOST_TEXTS)
    if not rows:
        return []
    by_sample: dict[int, list[Row]] = {}
    for row in rows:
        by_sample.setdefault(row["sample"], []).append(row)
    shown = [row for own in by_sample.values() for row in (own[:1] if len(own) == 1 else [own[0], own[-1]])]
    with RunStore.open(folder, reading=True) as store:
        roles = list(store.recipe_tree().get("models", {}))
    surprise = next((c for c in colourings(shown, roles) if c.name == "surprise"), None)
    found = marked(shown, TokenTexts.find(folder), surprise, most=MOST_TOKENS)
    return [
        {
            "step": row["step"],
            "evaluation": row["evaluation"].removesuffix(GIVEN),
            "sample": row["sample"],
            "info": facts(row["info"]),
            "nats": row["nats"],
            **own,
        }
        for row, own in zip(shown, found, strict=True)
    ]


def _last(cells: Sequence[float | None]) -> float:
    """The nats of the last evaluation that measured a text."""
    return next((nats for nats in reversed(cells) if nats is not None), -math.inf)
