from math import isnan

import pytest

from posttrain.components.rewards.route import Route
from posttrain.types import Task
from tests.components.rewards.judging import judge

FIELDS = {"origin": "a", "goal": "f", "visit": "c", "closed": "d", "budget": 10}
TRIP = Task(key="trip", prompt="a>f+c-d<10\n", fields={"query": FIELDS})


def test_all_checks_or_their_share() -> None:
    good = judge(Route(), " abcgf\n", TRIP)
    assert (good.value, good.status, good.parts["budget"].value) == (1.0, "ok", 1.0)
    bad = judge(Route(), "abegf", TRIP)
    assert (bad.value, bad.status, bad.parts["visit"].value) == (0.0, "wrong", 0.0)
    assert bad.explanation == "'abegf' fails visit"
    assert judge(Route(value="share"), "abegf", TRIP).value == pytest.approx(7 / 8)
    assert judge(Route(value="share"), "I do not know", TRIP).value == 0.0


def test_a_task_without_a_query_is_an_error() -> None:
    score = judge(Route(), "abcgf", Task(key="t", prompt=""))
    assert score.status == "error" and isnan(score.value)
