"""Exposure by hand, with a model that gives every token a number."""

import math
from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.exposure import ROWS, Exposure, exposure
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.records import Records
from posttrain.errors import UserError
from tests.components.diagnostics.test_cold_start import Policy

TASKS = Records(size=40, canaries=3)


def test_ranks_by_hand() -> None:
    assert exposure(np.array([-1.0, -2.0, -3.0, -4.0])) == 2.0  # the likeliest of four
    assert exposure(np.array([-4.0, -2.0, -3.0, -1.0])) == 0.0
    assert exposure(np.array([-2.0, -2.0, -3.0, -4.0])) == pytest.approx(math.log2(4 / 1.5))


@pytest.mark.parametrize(("known", "bits"), [(True, 6.0), (False, 0.0)])
def test_a_model_that_has_seen_the_codes(monkeypatch: pytest.MonkeyPatch, known: bool, bits: float) -> None:
    codes = {task.answer for task in TASKS.load() if "canary" in task.fields}

    def logps(policy: Any, written: Any) -> list[np.ndarray]:
        texts = [bytes(ids[before:].tolist()).decode().strip() for ids, before in written]
        return [np.full(len(text), -1.0 if (text in codes) == known else -2.0, np.float32) for text in texts]

    monkeypatch.setattr("posttrain.components.diagnostics._likelihoods.token_logps", logps)
    unused: Any = None
    model: Any = Subject(name="m", load=Policy, serve=unused)  # type: ignore[arg-type]
    finding = Exposure(tasks=TASKS, others=63).examine(model)
    assert finding.values["exposure"] == bits and finding.values["canaries"] == 3
    assert f"mean exposure of 3 canaries: {bits:.2f} bits" in finding.lines[0]
    assert ROWS == (74,)


def test_mistakes() -> None:
    model: Any = Subject(name="m", load=Policy, serve=None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="none of the tasks is a canary"):
        Exposure(tasks=Arithmetic(size=3)).examine(model)
