"""Points of a judge: 1 where the best candidate alone is first, -1 for all else."""

import json

import pytest

from posttrain.components.rewards.strict_best import StrictBest
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge

THREE = Task(key="k", prompt="q", fields={"gold": {"a": 1, "b": 3, "c": 2}})


def value(scores: object, task: Task = THREE, **settings: int) -> float:
    return judge(StrictBest(**settings), f"A critique. {json.dumps({'scores': scores})}", task).value


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": 1, "b": 9, "c": 8}, 1.0),
        ({"a": 8, "b": 9, "c": 1}, 1.0),  # the order of the others does not count
        ({"a": 1, "b": 9, "c": 9}, -1.0),
        ({"a": 10, "b": 9, "c": 1}, -1.0),
        ({"a": 1, "b": 9}, -1.0),
        ({"a": 1, "b": 9, "c": 8, "d": 7}, -1.0),
        ({"a": 1, "b": 11, "c": 8}, -1.0),
        ({"a": 1, "b": 9.5, "c": 8}, -1.0),
        ({"a": True, "b": 9, "c": 8}, -1.0),
        ({}, -1.0),
    ],
)
def test_the_best_alone_is_first(scores: dict[str, float], expected: float) -> None:
    assert value(scores) == expected


def test_one_candidate_is_right_with_its_label() -> None:
    one = Task(key="k", prompt="q", fields={"gold": {"a": 4}})
    assert value({"a": 4}, one) == 1.0 and value({"a": 5}, one) == -1.0
    assert value({"a": 4}, one, highest=3) == -1.0


def test_a_reply_without_scores_is_wrong_and_a_task_without_gold_is_reported() -> None:
    score = judge(StrictBest(), "I cannot say.", THREE)
    assert (score.value, score.status) == (-1.0, "wrong")
    with pytest.raises(UserError, match="take tasks of the kind ranking_items"):
        StrictBest().check([Task(key="k", prompt="q", fields={"gold": "b"})])
