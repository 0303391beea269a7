"""Paragraphs with masks as tasks."""

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.masked import Masked
from posttrain.components.tasks.pages import Pages
from posttrain.errors import UserError


def test_fewer_masks_first_and_answers_restore() -> None:
    tasks = Masked(tasks=Pages(size=30, what="paragraphs"), copies=3).load()
    masks = [task.fields["masks"] for task in tasks]
    assert masks == sorted(masks) and {1, 2, 3, 4} >= set(masks) and len(set(masks)) > 1
    for task in tasks:
        text = str(task.prompt).removeprefix("Fill the masks: ").removesuffix("\n")
        parts = text.split("[mask]")
        assert len(parts) - 1 == task.fields["masks"] and task.domain == f"masks {task.fields['masks']}"
        assert task.answer is not None and task.answer.startswith(parts[0]) and task.answer.endswith(parts[-1])
    assert len({task.prompt for task in tasks}) == len(tasks)


def test_the_order_of_the_source() -> None:
    tasks = Masked(tasks=Pages(size=30, what="paragraphs"), ordered=False).load()
    names = [task.fields["title"] for task in tasks]
    assert names == [t.fields["title"] for t in Pages(size=30, what="paragraphs").load() if t.fields["title"] in names]


def test_what_cannot_be_masked_is_refused() -> None:
    with pytest.raises(UserError, match="has no list of entities"):
        Masked(tasks=Arithmetic(size=2)).load()
