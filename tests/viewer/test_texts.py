"""Held-out demonstrations and pairs in the viewer: their losses by evaluation, and their tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.runs.store import RunStore, rollout_rows
from posttrain.stages.pairs import Side
from posttrain.types import Trajectory
from posttrain.viewer.heldout import heldout
from posttrain.viewer.pages import task
from tests.runs.made_runs import RECIPE, trajectory
from tests.viewer.looking import Page, browser

LOGP = {"a": [[-2.0, -4.0], [-1.0, -1.0]], "b": [[-1.0, -1.0], [-0.5, -2.5]]}
"""Of the two tokens of each chosen completion, at both evaluations; the rejected one is one nat less likely."""


def pair(key: str) -> list[Trajectory]:
    """Two completions of two tokens, each one not written by a policy."""
    made = [trajectory(prompt=f"{key}=", completion=text, key=key, sample=i) for i, text in enumerate(("ok", "no"))]
    sides: list[Any] = ["chosen", "rejected"]
    return [
        replace(
            one,
            segments=(one.segments[0], replace(one.segments[1], actor="demonstration", logp=None)),
            facts=(Side(side=side),),
        )
        for one, side in zip(made, sides, strict=True)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path, "dpo", RECIPE) as store:
        for place, step in enumerate((0, 8)):
            given = [text for key in LOGP for text in pair(key)]
            nats = [np.array(own[place], np.float32) - side for own in LOGP.values() for side in (0, 1)]
            rows = rollout_rows(given, columns=[{"trained_logp": one} for one in nats])
            summary = {"accuracy": None, "accuracy_interval": None, "tasks": 0, "errors": 0, "verifier": None}
            store.write_evaluation(step, "held-out", None, {**summary, "pairs": 2}, rows)
        return store.folder


def test_every_text_has_its_loss_at_each_evaluation(run: Path) -> None:
    page = heldout("dpo-1", run)
    assert page["rows"] == [] and page["in_all_texts"] == 4
    found = {(row["key"], row["info"][0]["text"]): row["cells"] for row in page["texts"]}
    assert found == {
        ("a", "chosen"): [3.0, 1.0],
        ("a", "rejected"): [4.0, 2.0],
        ("b", "chosen"): [1.0, 1.5],
        ("b", "rejected"): [2.0, 2.5],
    }
    assert [row["cells"][-1] for row in page["texts"]] == [2.5, 2.0, 1.5, 1.0], "the least likely first"
    shown = Page(browser(run).get("/runs/dpo-1/heldout").text)
    assert "The loss of each of 4 held-out texts" in shown.text and "answer to each" not in shown.text
    assert sum("/tasks/" in link for link in shown.links()) == 4


def test_its_tokens_are_coloured_by_surprise(run: Path) -> None:
    """Four nats or more are full strength; tokens of the prompt have none, since they are not measured."""
    page = task("dpo-1", run, "a")
    shown = [(text["step"], text["info"][0]["text"], text["nats"]) for text in page["texts"]]
    assert shown == [(0, "chosen", 3.0), (8, "chosen", 1.0), (0, "rejected", 4.0), (8, "rejected", 2.0)]
    prompt, written = page["texts"][0]["segments"]
    assert [piece["strength"] for piece in written["pieces"]] == [0.5, 1.0]
    assert [piece["trained"] for piece in prompt["pieces"] + written["pieces"]] == [False, False, True, True]
    html = Page(browser(run).get("/runs/dpo-1/tasks/a").text)
    assert "step 0, held-out, chosen 3.000 nats a token" in html.text
    assert any("surprise 4.000" in str(token["title"]) for token in html.with_class("t") if "title" in token)
    assert browser(run).get("/runs/dpo-1/tasks/none").status_code == 404
