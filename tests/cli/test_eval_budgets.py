"""posttrain eval --budget: accuracy under several numbers of turns or tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.runs.budgets import Budget, read_budget

SMALL = ("tasks.size=12", "tasks.terms=[2, 2]", "evaluation.holdout=4", "evaluation.sampling.max_tokens=4", "threads=1")
TURNS = "evaluation.rollout={kind: turns, environment: {kind: try_again, tries: 9}, max_turns: 5}"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=128))


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_each_number_of_turns_is_an_evaluation(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    found = answer(capfd, "eval", tiny, *SMALL, TURNS, "--budget", "turns=1,3")["budgets"]
    assert [own["turns"] for own in found] == [1, 3]
    assert [own["mean_turns"] for own in found] == [1.0, 3.0]
    alone = answer(capfd, "eval", tiny, *SMALL, TURNS.replace("max_turns: 5", "max_turns: 3"))
    assert {name: alone[name] for name in ("accuracy", "mean_tokens", "tasks")} == {
        name: found[1][name] for name in ("accuracy", "mean_tokens", "tasks")
    }


def test_tokens_of_a_turn(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    found = answer(capfd, "eval", tiny, *SMALL, "--budget", "tokens=2,6")["budgets"]
    assert [own["tokens"] for own in found] == [2, 6]
    assert found[0]["mean_tokens"] <= 2 < found[1]["mean_tokens"] <= 6
    assert main(["eval", tiny, *SMALL, "--budget", "tokens=2"]) == 0
    assert capfd.readouterr().out.split()[:2] == ["tokens", "accuracy"]


def test_one_turn_has_no_budget_of_turns(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    assert main(["eval", tiny, *SMALL, "--budget", "turns=1,2"]) == 2
    assert "has no setting max_turns" in capfd.readouterr().err
    assert main(["eval", tiny, *SMALL, "--budget", "turns=1", "--save", "a.parquet"]) == 2
    assert "are without --save" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "turns", "turns=", "calls=1", "turns=0", "turns=1,1", "turns=x", "turns=9999999"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--budget"):
        read_budget(text)


def test_a_budget_is_read() -> None:
    assert read_budget("tokens=16, 64") == Budget(unit="tokens", amounts=[16, 64])
