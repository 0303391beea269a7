"""Planted faults are shown by the calls, and demonstrations repair them."""

from typing import Any

import pytest

from posttrain.components.tasks.repairs import SHAPES, Repairs
from posttrain.grading.edit_blocks import edited, edits_of


def _results(files: dict[str, str], calls: list[str]) -> list[Any]:
    space: dict[str, Any] = {}
    exec("\n".join(files.values()), space)
    return [eval(call, space) for call in calls]


@pytest.mark.parametrize("lettered", [False, True])
@pytest.mark.parametrize("level", range(1, 6))
def test_a_hundred_of_each_level(level: int, lettered: bool) -> None:
    for task in Repairs(size=100, level=level, lettered=lettered).load():
        files, oracle, calls = (task.fields[name] for name in ("files", "oracle", "calls"))
        assert len(files) == SHAPES[level][0] and len(calls) == 20
        assert sum(text.count("def ") for text in files.values()) == SHAPES[level][0] * SHAPES[level][1]
        assert _results(files, calls) != _results({**files, **oracle}, calls)
        assert edited(files, edits_of(task.demonstrations[0])) == oracle
        (path,) = oracle
        assert sum(a != b for a, b in zip(files[path].split("\n"), oracle[path].split("\n"), strict=True)) == 1
        assert all(f"### {path}\n{text}" in str(task.prompt) for path, text in files.items())


def test_share_of_slips() -> None:
    tasks = Repairs(size=500, slips=0.5).load()
    right = sum(task.answer in task.demonstrations[0].partition("=======")[2] for task in tasks)
    assert 210 < right < 290
    exchanged = sum(
        str(task.answer) in task.demonstrations[0].partition("=======")[0] for task in Repairs(size=500, slips=1).load()
    )
    assert 270 < exchanged < 355, "five in eight"
