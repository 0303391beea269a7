"""Curves of several runs in one picture."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.runs.store import RunStore
from posttrain.viewer.overlay import overlay
from tests.runs.made_runs import RECIPE
from tests.viewer.looking import Page, browser


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Path]:
    runs = {}
    for name, rewards in (("a", [0.1, 0.2]), ("b", [0.3]), ("c", [])):
        with RunStore.create(tmp_path, name, RECIPE) as store:
            for step, reward in enumerate(rewards, 1):
                store.log_metrics(step, "rl", step, {"reward": reward, "odd": 2.0 * reward})
            if name == "a":
                summary = {"accuracy": 0.5, "accuracy_interval": [0.25, 0.75]}
                store.write_evaluation(0, "before", _none(), summary)
            runs[name] = store.folder
    return runs


def _none() -> Any:
    from posttrain.runs.store import rollout_rows
    from tests.runs.made_runs import right, trajectory

    return rollout_rows([trajectory(score=right("5"))])


def lines(page: dict[str, Any]) -> dict[str, dict[str, list[list[float]]]]:
    """By chart and run, the values of a line."""
    charts = {}
    for chart in page["charts"]:
        [svg] = [a for tag, a in Page(str(chart["svg"])).elements if tag == "svg"]
        series = json.loads(str(svg["data-series"]))["series"]
        charts[chart["title"]] = {one["name"]: [point[:2] for point in one["points"]] for one in series}
    return charts


def test_a_line_for_each_run_in_each_chart(found: dict[str, Path]) -> None:
    page = overlay(found, ["a", "b"], [])
    assert lines(page) == {
        "held-out accuracy": {"a": [[0, 0.5]], "b": []},
        "reward": {"a": [[1, 0.1], [2, 0.2]], "b": [[1, 0.3]]},
    }
    assert page["metrics"] == ["held-out accuracy", "odd", "reward"]
    assert lines(overlay(found, ["b", "a"], ["odd"])) == {"odd": {"b": [[1, 0.6]], "a": [[1, 0.2], [2, 0.4]]}}


def test_a_run_without_numbers_has_no_line(found: dict[str, Path]) -> None:
    assert overlay(found, ["c"], [])["charts"] == []
    (found["b"] / "metrics.jsonl").write_text("{\n[]\n")
    page = overlay(found, ["a", "b"], ["reward"])
    assert list(page["problems"]) == ["b"] and list(lines(page)["reward"]) == ["a", "b"]


def test_as_many_as_can_be_distinguished(found: dict[str, Path]) -> None:
    many = {f"r{i}": found["a"] for i in range(6)}
    with pytest.raises(UserError, match="at most 5 runs are drawn together, got 6"):
        overlay(many, list(many), [])


def test_the_page(found: dict[str, Path]) -> None:
    looking = browser(found["a"].parent)
    page = Page(looking.get("/curves?run=a-1&run=b-1&metric=reward").text)
    assert [a["aria-label"] for tag, a in page.elements if tag == "svg"] == ["reward"]
    chosen = {(a["name"], a["value"]) for tag, a in page.elements if tag == "input" and "checked" in a}
    assert chosen == {("run", "a-1"), ("run", "b-1"), ("metric", "reward")}


def mixed(root: Path, name: str, curriculum: Any, accuracy: float | None) -> Path:
    tree = {**RECIPE, "tasks": name == "other", "stages": {"rl": {"kind": "rl", "curriculum": curriculum}}}
    with RunStore.create(root, name, tree) as store:
        if accuracy is not None:
            summary = {"accuracy": accuracy, "accuracy_interval": [0.0, 1.0], "tasks": 1, "correct": 1, "errors": 0}
            store.write_evaluation(0, "before", _none(), summary)
        return store.folder


def test_runs_with_shares_are_points_of_one_triangle(tmp_path: Path) -> None:
    given = {
        "corner": ({"kind": "by_share", "shares": {"sums": 1}}, 0.5),
        "edge": ({"kind": "by_share", "shares": {"sums": 1, "words": 3, "odd": 0}}, 0.75),
        "all": ("by_share", 0.625),
        "third": ({"kind": "by_share", "shares": {"maps": 2}}, 0.25),
        "other": ({"kind": "by_share", "shares": {"elsewhere": 1}}, 0.9),
        "none": ("uniform", 0.9),
        "running": ({"kind": "by_share", "shares": {"sums": 1}}, None),
        "broken": ({"kind": "by_share", "shares": [1, "x"]}, 0.1),
    }
    runs = {name: mixed(tmp_path, name, *own) for name, own in given.items()}
    chosen = {name: runs[name] for name in ("corner", "edge", "all", "none", "running", "broken", "other")}
    page = overlay(chosen, ["corner"], [])["mixtures"]
    assert page["domains"] == ["sums", "words"] and page["svg"] is None, "two domains are no triangle"
    assert [row["run"] for row in page["rows"]] == ["edge", "all", "corner", "broken"]
    found = overlay({**chosen, "third": runs["third"]}, ["all"], [])["mixtures"]
    assert found["domains"] == ["maps", "sums", "words"] and found["rows"][0]["shares"] == {
        "maps": 0.0,
        "sums": 0.25,
        "words": 0.75,
    }
    points = [a for tag, a in Page(str(found["svg"])).elements if tag == "circle"]
    assert len(points) == 5 and len({(a["cx"], a["cy"]) for a in points}) == 4, "all alike, twice in the middle"
    assert overlay(runs, ["none"], [])["mixtures"] is None
    looking = browser(tmp_path)
    shown = Page(looking.get("/curves", params={"run": runs["edge"].name}).text)
    assert "Mixtures" in shown.text and "words" in shown.text and "75.0%" in shown.text
    assert "Mixtures" not in looking.get("/curves", params={"run": runs["none"].name}).text
