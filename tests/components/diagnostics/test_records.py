"""Labels of greedy records, F1 by hand, and likelihoods of a turn and of its rewriting."""

from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.records import Records, macro_f1
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.tutoring import FIELDS, Tutoring
from posttrain.errors import UserError
from tests.components.diagnostics.test_cold_start import Policy, Writer

TASKS = Tutoring(size=12)


def test_macro_f1_by_hand() -> None:
    # a: 1 right, 1 missed; b: 1 right, 1 false alarm; the empty label of an unreadable record is none of the labels
    assert macro_f1([("a", "a"), ("b", "a"), ("b", "b")]) == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert macro_f1([("", "a"), ("b", "b")]) == pytest.approx((0.0 + 1.0) / 2)
    assert macro_f1([("a", "a")]) == 1.0


def found(monkeypatch: pytest.MonkeyPatch, answers: dict[str, str]) -> dict[str, Any]:
    def logps(policy: Any, written: Any) -> list[np.ndarray]:
        texts = [bytes(ids[before:].tolist()).decode() for ids, before in written]
        # a hint is likelier, a token, than the solution, although it is longer
        return [np.full(len(text), -2.0 if "it is" in text else -1.0, np.float32) for text in texts]

    monkeypatch.setattr("posttrain.components.diagnostics._likelihoods.token_logps", logps)
    model: Any = Subject(name="m", load=Policy, serve=lambda _: Writer(answers))  # type: ignore[arg-type,return-value]
    finding = Records(tasks=TASKS, fields=FIELDS).examine(model)
    assert finding.lines[0].startswith("12 records")
    return dict(finding.values["found"]["m"])


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = TASKS.load()
    answers = {task.key: task.answer or "" for task in tasks}
    row = found(monkeypatch, answers)
    assert row["all"] == 1.0 and all(row[name] == {"accuracy": 1.0, "macro_f1": 1.0} for name in FIELDS)
    assert row["compared"] == sum("told" in task.fields for task in tasks) > 0 and row["reference_likelier"] == 1.0
    answers[tasks[0].key] = "no record at all"
    answers[tasks[1].key] = answers[tasks[1].key].replace("state: ", "state: q")
    row = found(monkeypatch, answers)
    assert (row["unreadable"], row["all"]) == (1, pytest.approx(10 / 12))
    assert (row["state"]["accuracy"], row["action"]["accuracy"]) == pytest.approx((10 / 12, 11 / 12))


def test_a_reference_without_a_label_is_refused() -> None:
    model: Any = Subject(name="m", load=Policy, serve=None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="the reference record has no 'action'"):
        Records(tasks=Arithmetic(size=2), fields=("action",)).examine(model)
