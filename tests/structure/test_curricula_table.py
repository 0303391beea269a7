"""The command that puts measured curricula beside planned numbers."""

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def curricula() -> Any:
    spec = importlib.util.spec_from_file_location("curricula", ROOT / "docs/experiments/curricula.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(mean: float, error: float) -> dict[str, float]:
    return {"mean": mean, "standard_error": error}


def test_a_number_agrees_within_two_standard_errors_of_the_difference(curricula: Any) -> None:
    line = curricula.line
    assert line("t", "vas", 0.70, 0.01, 0.72) == ["t", "vas", "0.700 ± 0.010", "0.72", "yes"]
    assert line("t", "vas", 0.70, 0.01, 0.73)[-1] == "no", ".03 is more than 2 sqrt(2) .01 = .0283"
    assert line("t", "vas", 0.701, 0.0, 0.71)[-1] == "yes", "two digits: half of .01 is the least error"
    assert line("t", "vas", 0.699, 0.0, 0.71)[-1] == "no"
    assert line("t", "vas", 5300.4, 20.0, 5322) == ["t", "vas", "5,300 ± 20", "5,322", "yes"]
    assert line("t", curricula.SEC, 0.5, 0.1, 0.5)[1] == "sec, 0.2"


def test_ratios_have_the_error_of_both(curricula: Any) -> None:
    own = {"a": {"rollouts_to": found(80.0, 4.0)}, "uniform": {"rollouts_to": found(100.0, 10.0)}}
    value, error = curricula.ratio(own, "a")
    assert value == 0.8 and error == pytest.approx(0.8 * math.hypot(0.05, 0.1))


def test_every_planned_number_is_measured_once(curricula: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis that finds the planned numbers agrees in each row; one that is far off in none."""
    asked: list[tuple[str, ...]] = []

    def diagnosed(what: str, *arguments: str) -> dict[str, Any]:
        asked.append((what, *arguments))
        names = [name for name in arguments if "=" not in name or name.startswith("{")] + ["oracle", "oversampled"]
        if what == "hints":
            return {name: {"mean": 9.0, "low": 9.0, "high": 9.0} for name in names}
        own = {key: found(9e6, 1.0) for key in ("spread", "regret", "rollouts_to", "accuracy")}
        return {name: {**own, "shares": {"coin flip": 9.0}} for name in names}

    monkeypatch.setattr(curricula, "diagnosed", diagnosed)
    rows = curricula.everything("seeds=2")
    tables = (curricula.ONE_SKILL, curricula.SHUFFLED, curricula.DOMAINS)
    planned = sum(len(numbers) for table in tables for numbers in table.values())
    assert len(rows) == planned + len(curricula.RATIO_SPREAD) + len(curricula.RATIO_VISITS) + len(curricula.HINTS) == 46
    assert all(row[-1] == "no" for row in rows) and all(call[-1] == "seeds=2" for call in asked)
    assert len({tuple(row[:2]) for row in rows}) == len(rows)


@pytest.mark.slow
def test_the_diagnosis_has_the_numbers_that_are_read(curricula: Any) -> None:
    own = curricula.diagnosed("curriculum", "uniform", curricula.SEC, "seeds=2", "steps=8", "tasks=32")
    rows = curricula.lines("one skill", {"spread": {"uniform": 0.5, curricula.SEC: 0.5, "oracle": 0.9}}, own)
    assert [row[1] for row in rows] == ["uniform", "sec, 0.2", "oracle"] and "rollouts_to" in own["uniform"]
