"""Overlap of two updates, beside chance."""

from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.components.diagnostics import Subject, _updates
from posttrain.components.diagnostics.overlap import ROWS, Overlap


def examine(monkeypatch: pytest.MonkeyPatch, before: Tensor, after: Tensor, other: Tensor, **settings: Any) -> Any:
    models = {"before": {"w": before}, "after": {"w": after}, "other": {"w": other}}
    monkeypatch.setattr(_updates, "weights_of", lambda subject: models[subject.name])
    unused: Any = None
    return Overlap(**settings).examine(*(Subject(name=name, load=unused, serve=unused) for name in models))


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten weights the first moves 0 to 3, the second 2 to 6: two are shared."""
    after, other = torch.zeros(10), torch.zeros(10)
    after[:4], other[2:7] = 1.0, 1.0
    found = examine(monkeypatch, torch.zeros(10), after, other).values
    assert found["density"] == [0.4, 0.5]
    assert found["overlap"] == [2 / 4, 2 / 5]
    assert found["chance"] == [0.5, 0.4]
    assert found["times_chance"] == pytest.approx(1.0)
    assert ROWS == (5,)


def test_the_same_update_overlaps_wholly(monkeypatch: pytest.MonkeyPatch) -> None:
    after = torch.tensor([1.0, 0.0, 0.0, 0.0])
    found = examine(monkeypatch, torch.zeros(4), after, after)
    assert found.values["overlap"] == [1.0, 1.0] and found.values["times_chance"] == 4.0
    assert found.lines[-1] == "4.00 times as many as by chance"


def test_of_nothing_it_is_not_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examine(monkeypatch, torch.zeros(2), torch.ones(2), torch.zeros(2))
    assert found.values["overlap"] == [0.0, None] and found.values["times_chance"] is None
    assert found.lines == ["other changed no weight, so that an overlap is not defined"]


def test_type_and_tolerance_decide_what_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = torch.full((2,), 0.02), torch.tensor([0.02002, 0.0202])
    assert examine(monkeypatch, before, after, after).values["density"] == [0.5, 0.5]
    assert examine(monkeypatch, before, after, after, dtype="float32").values["density"] == [1.0, 1.0]
    assert examine(monkeypatch, before, after, after, dtype="float32", tolerance=1e-4).values["density"] == [0.5, 0.5]
