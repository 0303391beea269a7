"""What each stage gained and lost, on rows that are written out and on a run."""

from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.cli.run import changes_of_sets
from posttrain.errors import UserError
from posttrain.runs.by_stage import _by_set, _one, _several, stages_of
from tests.runs.made_runs import make_run


def rows(**values: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"task_key": key, "domain": domain, "reward": reward} for key, (domain, reward) in values.items()]


def test_sets_are_domains_and_all() -> None:
    found = _by_set(rows(a=("sums", 1.0), b=("words", 0.5), c=("sums", 0.0)), 0.5)
    assert found == {
        "sums": {"a": True, "c": False},
        "words": {"b": True},
        "all": {"a": True, "b": True, "c": False},
    }
    assert list(_by_set(rows(a=("", 1.0)), 1.0)) == ["all"], "tasks without a domain are one set"


def test_a_change_is_of_the_same_tasks() -> None:
    """Of three tasks that both have, one is gained and one lost."""
    before = {"a": True, "b": False, "c": True, "x": True}
    after = {"a": True, "b": True, "c": False, "y": True}
    found = _one([before], [after])
    assert (found["accuracy"], found["tasks"]) == (0.75, 4)
    assert (found["change"]["value"], found["change"]["gained"], found["change"]["lost"]) == (0.0, 1, 1)
    assert "change" not in _one(None, [after])


def test_over_runs_the_unit_is_the_run() -> None:
    """Changes of 1/2 and 1: a mean of 3/4, with Student's t of one degree of freedom, 12.706 * (1/4)."""
    before = [{"a": False, "b": True}, {"a": False, "b": False}]
    after = [{"a": True, "b": True}, {"a": True, "b": True}]
    change = _several(before, after)["change"]
    assert (change["value"], change["gained"], change["lost"]) == (0.75, 1.5, 0.0)
    assert change["interval"] == pytest.approx([0.75 - 12.7062 / 4, 0.75 + 12.7062 / 4], abs=1e-4)


def test_named_sets_become_the_held_out_tasks() -> None:
    tasks, holdout = changes_of_sets("sums=a.jsonl,words=b.jsonl", ["seed=1"])
    assert tasks == (
        'evaluation.tasks={"kind": "mixture", "sources": {"sums": "a.jsonl", "words": "b.jsonl"}, "domains": "source", '
        '"most": 200}'
    )
    assert holdout == "evaluation.holdout=400"
    [own] = changes_of_sets("sums=a.jsonl,words=b.jsonl", ["evaluation.holdout=5"])
    assert own.endswith('"most": 3}'), "five tasks are three of one set and two of the other"


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("sums", [], "'sums' is no set; write NAME=TASKS"),
        ("a=x,a=y", [], "two sets are named 'a'"),
        ("a=x", ["evaluation.tasks=y"], "and so does evaluation.tasks=y"),
    ],
)
def test_bad_sets(text: str, changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        changes_of_sets(text, changes)


def test_a_run_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path, sft=3, rl=4, tasks=20)
    run = stages_of([folder])
    assert [stage["name"] for stage in run["stages"]] == ["before", "sft", "rl"]
    assert main(["stages", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "before" in shown and "all" in shown
