"""Extracted functions compute what the original does, and are what rope writes."""

from pathlib import Path
from typing import Any

import pytest

from posttrain.components.tasks.refactorings import Refactorings
from posttrain.types import Task


def _results(text: str, task: Task) -> list[Any]:
    space: dict[str, Any] = {}
    exec(text, space)
    return [space["f"](*row) for row in task.fields["inputs"]]


def test_one_by_hand() -> None:
    (task,) = Refactorings(size=1).load()
    source = task.fields["source"]
    first, block, last = source.splitlines()[0], source.splitlines()[1:3], source.splitlines()[3]
    assert task.prompt == f"{source}:\n" and task.answer is not None
    lines = task.answer.splitlines()
    assert lines[0] == first and lines[2] == last and lines[5:7] == block and lines[7] == " return d"


def test_both_texts_have_the_same_results_on_a_thousand() -> None:
    for level in range(1, 6):
        for task in Refactorings(size=200, level=level).load():
            assert len(task.fields["inputs"]) == 20
            assert _results(task.answer or "", task) == _results(task.fields["source"], task)


def test_shares_of_demonstrations() -> None:
    tasks = Refactorings(size=1000, copies=0.4, slips=0.2).load()
    copies = sum(task.demonstrations[0] == task.fields["source"] for task in tasks)
    targets = sum(task.demonstrations[0] == task.answer for task in tasks)
    assert 350 < copies < 450 and 350 < targets < 450


@pytest.mark.slow
def test_rope_writes_the_same(tmp_path: Path) -> None:
    project = pytest.importorskip("rope.base.project").Project(str(tmp_path), ropefolder=None, indent_size=1)
    extract = pytest.importorskip("rope.refactor.extract").ExtractMethod
    module = project.root.create_file("module.py")
    for level in range(1, 6):
        for task in Refactorings(size=200, level=level).load():
            source, answer = task.fields["source"], task.answer or ""
            lines = source.splitlines(keepends=True)
            start = next(i for i, line in enumerate(answer.splitlines()) if "= g(" in line)
            module.write(source)
            begin = len("".join(lines[:start])) + 1
            changes = extract(project, module, begin, len("".join(lines[: start + 2])) - 1).get_changes("g")
            assert changes.changes[0].new_contents == answer
