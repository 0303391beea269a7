"""Held-out tasks by evaluations, beside the same worked out from the record."""

from itertools import pairwise
from pathlib import Path

import pytest

from posttrain.runs.store import RunStore
from posttrain.viewer.heldout import heldout
from tests.runs.made_runs import make_run
from tests.viewer.looking import Page, browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), sft=1, rl=9, tasks=30)


def test_every_answer_has_its_cell(run: Path) -> None:
    with RunStore.open(run, reading=True) as store:
        columns = [(e["step"], e["name"]) for e in store.evaluations()]
        expected: dict[str, list[str]] = {}
        for place in columns:
            for row in store.evaluation_rows(*place):
                expected.setdefault(row["task_key"], []).append("right" if row["reward"] >= 1.0 else "wrong")
    page = heldout("run", run, "key")
    assert [(c["step"], c["name"]) for c in page["columns"]] == columns and len(columns) == 4
    assert {row["key"]: row["cells"] for row in page["rows"]} == expected
    assert [row["key"] for row in page["rows"]] == sorted(expected)


def test_orders(run: Path) -> None:
    def changes(cells: list[str]) -> int:
        return sum(a != b for a, b in pairwise(cells))

    found = [changes(row["cells"]) for row in heldout("run", run, "changed")["rows"]]
    assert found == sorted(found, reverse=True) and found[0] > found[-1]
    solved = [row["cells"].count("right") for row in heldout("run", run, "worst")["rows"]]
    assert solved == sorted(solved)


def test_the_page(run: Path) -> None:
    page = Page(browser(run).get("/runs/quickstart-1/heldout").text)
    assert len([a for a in page.with_class("cell") if "title" in a]) == 4 * 30
    assert sum("/tasks/" in link for link in page.links()) == 30
