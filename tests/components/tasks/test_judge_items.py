"""Pairs of sums, and items for a judge made of pairs."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from posttrain.components.tasks.compared_sums import ComparedSums
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.judge_items import JudgeItems
from posttrain.errors import UserError


def test_the_larger_sum_is_chosen() -> None:
    for task in ComparedSums(size=200, terms=(1, 3)).load():
        (pair,) = task.preferences
        more, less = (sum(map(int, text.split("+"))) for text in (pair.chosen, pair.rejected))
        assert more > less and pair.fields["notes"] == [str(more), str(less)]
        assert pair.strength == (1 if more - less <= 2 else 2 if more - less <= 5 else 3)
        assert task.demonstrations[0] in (pair.chosen, pair.rejected)


def test_both_orders_are_two_items_of_opposite_labels() -> None:
    source = ComparedSums(size=20)
    items = JudgeItems(tasks=source, order="both", label="strength").load()
    for first, second, task in zip(items[::2], items[1::2], source.load(), strict=True):
        (pair,) = task.preferences
        assert first.prompt == f"{task.prompt}\nA: {pair.chosen}\nB: {pair.rejected}\n"
        assert second.prompt == f"{task.prompt}\nA: {pair.rejected}\nB: {pair.chosen}\n"
        assert int(first.answer or "") == -int(second.answer or "") == -pair.strength
        notes = pair.fields["notes"]
        assert second.demonstrations == (f"<think>A {notes[1]}, B {notes[0]}</think><answer>{second.answer}</answer>",)
        assert first.fields["pair"] == second.fields["pair"]


def test_drawn_orders_are_balanced_and_do_not_depend_on_other_items() -> None:
    many, few = (JudgeItems(tasks=ComparedSums(size=n)).load() for n in (400, 50))
    assert list(many[:50]) == list(few)
    assert 160 < sum(item.answer == "A" for item in many) < 240


def files(tmp_path: Path, **more: object) -> Files:
    row = {"prompt": "Which?", "chosen": "good", "rejected": "bad", **more}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row))
    return Files(path=str(tmp_path / "pairs.jsonl"))


def test_a_users_rows(tmp_path: Path) -> None:
    given = files(tmp_path, label="B", thought="bad is bad", strength=2)
    (item,) = JudgeItems(tasks=given, order="as_given", label="sentence").load()
    assert item.prompt == "Which?\nA: bad\nB: good\n" and item.answer == "Answer 2 is better"
    assert item.demonstrations == ("<think>bad is bad</think><answer>Answer 2 is better</answer>",)
    (item,) = JudgeItems(tasks=given, order="as_given", label="strength").load()
    assert item.answer == "2"


def test_bad_rows_and_templates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="column 'label'"):
        JudgeItems(tasks=files(tmp_path), order="as_given").load()
    with pytest.raises(UserError, match="1, 2 or 3, not 4"):
        JudgeItems(tasks=files(tmp_path, strength=4), label="strength").load()
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"prompt": "Which?", "answer": "A"}))
    with pytest.raises(UserError, match="chosen and rejected"):
        JudgeItems(tasks=Files(path=str(tmp_path / "pairs.jsonl"))).load()
    with pytest.raises(ValidationError, match="must show both"):
        JudgeItems(tasks=ComparedSums(), template="{first}")


def test_what_stands_between_marks_cannot_contain_them() -> None:
    (item,) = JudgeItems(
        tasks=ComparedSums(size=1), template="{marked_first}{marked_second}", order="as_given"
    ).tasks.load()
    (shown,) = JudgeItems(tasks=ComparedSums(size=1), template="{marked_first}{marked_second}").load()
    assert str(shown.prompt).count("<<<BEGIN") == 2 and item.preferences[0].chosen in str(shown.prompt)
