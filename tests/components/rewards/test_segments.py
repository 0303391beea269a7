"""Rewards of parts of a completion."""

import pytest

from posttrain.components.rewards.function import Function
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.segments import Segments
from posttrain.components.rewards.sum import Sum
from posttrain.types import Task
from tests.components.rewards.judging import Write, judge

BAD = Segments(of=Regex(pattern="darn"), faults=True, right=0.0, wrong=-1.0)
TEXT = "The fox runs. The darn crow sleeps. It is darn late."


def test_two_guilty_sentences() -> None:
    found = judge(BAD, TEXT)
    assert (found.value, found.status) == (-2.0, "wrong")
    assert [(TEXT[a:b], r) for a, b, r, _ in found.spans] == [
        ("The fox runs.", 0.0),
        ("The darn crow sleeps.", -1.0),
        ("It is darn late.", -1.0),
    ]
    assert {name: part.value for name, part in found.parts.items()} == {"bad": 2.0, "parts": 3.0}
    assert judge(BAD, "The fox runs.").status == "ok" and judge(BAD, "").value == 0.0


def test_holistic_is_the_same_value_without_places() -> None:
    holistic = Segments(of=BAD.of, faults=True, right=0.0, wrong=-1.0, placed=False)
    assert judge(holistic, TEXT).value == -2.0 and judge(holistic, TEXT).spans == ()
    assert BAD.spans and not holistic.spans and not BAD.undiscounted


def test_one_endless_sentence_has_one_fault() -> None:
    """The cheat: faults are counted by parts, so that ten in one sentence cost as much as one."""
    assert judge(BAD, " ".join(["darn"] * 10)).value == -1.0
    assert judge(BAD, " ".join(["darn."] * 10)).value == -10.0


def test_the_default_is_plus_or_minus_the_weight_and_none_takes_the_score(write: Write) -> None:
    assert judge(Segments(of=Regex(pattern="good")), "good. bad. good.").value == pytest.approx(0.3)
    scored: Function = write("def score(completion):\n    return len(completion)\n", time_limit=None)
    assert judge(Segments(of=scored, right=None, wrong=None), "one. three.").value == 4 + 6


def test_weights_of_a_sum_reach_the_spans_and_parts_are_named() -> None:
    both = Sum(parts={"tone": BAD, "right": Match()}, weights={"tone": 0.5, "right": 2.0})
    found = judge(both, "darn.\n42")
    assert found.value == pytest.approx(0.5 * -1 + 2.0)
    assert found.spans == ((0, 5, -0.5, "tone"), (6, 8, 0.0, "tone")) and both.spans


def test_a_task_without_an_answer_is_an_error_also_for_an_empty_completion() -> None:
    reward = Segments(of=Match())
    for text in ("", "42. 43."):
        assert judge(reward, text, Task(key="bare", prompt="?")).status == "error"
