"""Exercises of several kinds, each with the one answer that its form requires."""

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.tasks.exercises import DRAWN, Exercises
from tests.components.rewards.judging import judge

ALL = Exercises(names=tuple(DRAWN), size=300)


def answered(kind: str, asked: str) -> str:
    body = asked.partition(": ")[2]
    words = body.rstrip("?").split()
    if kind == "compare":
        return max(asked.rstrip("?").removeprefix("Which is larger, ").split(" or "), key=int)
    return {
        "copy": body,
        "reverse": " ".join(words[::-1]),
        "sort": " ".join(sorted(words, key=int)) if kind == "sort" else "",
        "count": str(len(words)),
        "spell": " ".join(body),
    }[kind]


def test_every_answer_is_right() -> None:
    for task in ALL.load():
        assert task.answer == answered(task.domain, str(task.prompt).strip())
        assert task.demonstrations == (task.answer,)


def test_kinds_are_in_equal_parts_and_a_larger_size_begins_alike() -> None:
    tasks = ALL.load()
    assert [task.domain for task in tasks[:6]] == list(DRAWN)
    assert Exercises(names=tuple(DRAWN), size=60).load() == tasks[:60]
    assert len({task.key for task in tasks}) == 300
    assert Exercises(size=10, seed=1).load() != Exercises(size=10).load()


@pytest.mark.parametrize("demonstrate", [True, False])
def test_items_and_demonstrations(demonstrate: bool) -> None:
    tasks = Exercises(names=("sort",), size=50, items=(4, 6), demonstrate=demonstrate).load()
    assert {len(str(task.answer).split()) for task in tasks} == {4, 5, 6}
    assert all(bool(task.demonstrations) == demonstrate for task in tasks)


def test_the_answer_is_scored_by_match() -> None:
    task = Exercises(names=("reverse",), size=1).load()[0]
    assert judge(Match(extract=("last_line",)), str(task.answer), task).value == 1.0
    assert judge(Match(extract=("last_line",)), f"{task.answer} fox", task).value == 0.0
