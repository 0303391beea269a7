"""Searched answers: values worked by hand, the gate on every turn, refusals, other golds."""

from dataclasses import replace

import pytest

from posttrain.components.rewards.search_answer import SearchAnswer, format_fault, overlap
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all

ZOO = Task(key="zoo", prompt="Who?", answer="the red panda")
YES = Task(key="yes", prompt="Is it?", answer="Yes")


def answered(text: str, thought: str = "<think>so</think>") -> str:
    return f"{thought}<answer>{text}</answer>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (answered("The red-panda!"), 1.0),  # punctuation is a space
        (answered("red panda"), 0.8),  # 2 of 2 and 2 of 3 words: 2 * 2 / 5
        (answered("panda panda panda"), 0.5),  # sets: 1 of 1 and 1 of 3
        (answered("bear"), 0.0),
        (answered(r"so \boxed{the red panda}"), 1.0),
        ("", 0.0),
        ("<think>so</think>the red panda", 0.0),  # no answer
        ("<think>so<answer>the red panda</answer>", 0.0),  # a thought that is not closed
        ("<search>x</search>" + answered("the red panda"), 0.0),  # a call and an answer in one turn
        (answered("the red panda", "<think>as an Assistant</think>"), 0.0),
        (answered("the red panda", "<think>a</think><think>b</think>"), 0.0),
    ],
)
def test_values(text: str, value: float) -> None:
    assert judge(SearchAnswer(), text, ZOO).value == pytest.approx(value)


def test_the_last_answer_counts_and_two_break_the_format() -> None:
    both = "<answer>bear</answer><answer>the red panda</answer>"
    assert judge(SearchAnswer(), both, ZOO).value == 0.0
    assert judge(SearchAnswer(), both, ZOO).answer == "the red panda"


def test_true_is_yes() -> None:
    assert judge(SearchAnswer(), answered("True"), YES).value == 1.0


def test_exact_wants_the_same_words_in_the_same_order() -> None:
    exact = SearchAnswer(measure="exact")
    assert judge(exact, answered("The red panda."), ZOO).value == 1.0
    assert judge(exact, answered("panda the red"), ZOO).value == 0.0
    assert judge(SearchAnswer(), answered("panda the red"), ZOO).value == 1.0


def test_the_best_of_several_answers() -> None:
    several = replace(ZOO, fields={"answers": ["the red panda", "firefox"]})
    assert judge(SearchAnswer(), answered("Firefox"), several).value == 1.0


def test_other_golds_have_a_share() -> None:
    """F1 0.8 with the gold and 1 with another one: 0.7 * 0.8 + 0.3 * 1."""
    task = replace(ZOO, fields={"augmented": ["red panda"]})
    assert judge(SearchAnswer(), answered("red panda"), task).value == pytest.approx(0.86)
    assert judge(SearchAnswer(), answered("the red panda"), task).value == pytest.approx(1.0)


def test_a_refusal_costs_where_the_task_demands_an_answer() -> None:
    """Whatever else holds: also with a broken format, and with the right words beside it."""
    demanding = replace(ZOO, fields={"demands_valid": True})
    text = "the red panda, if the Question is valid"
    assert judge(SearchAnswer(), answered(text), demanding).value == -0.5
    assert judge(SearchAnswer(), answered(text, "<think>"), demanding).value == -0.5
    assert judge(SearchAnswer(), answered(text), ZOO).value > 0.5


def test_every_turn_is_checked() -> None:
    rollout = attempt(answered("the red panda"), ZOO)
    prompt, last = rollout.segments[0], rollout.segments[-1]
    broken = replace(last, text="<search>zoo")
    (score,) = score_all(SearchAnswer(), replace(rollout, segments=(prompt, broken, last)))
    assert score.value == 0.0 and "turn 1 has 1 <search> and 0 </search>" in score.explanation
    (whole,) = score_all(
        SearchAnswer(), replace(rollout, segments=(prompt, replace(last, text="<search>z</search>"), last))
    )
    assert whole.value == 1.0


def test_overlap_of_nothing_is_nothing() -> None:
    assert overlap("", "x") == overlap("", "") == 0.0
    assert format_fault([], ("search",)) == ""


def test_a_task_without_an_answer_cannot_be_scored() -> None:
    assert judge(SearchAnswer(), answered("x"), replace(ZOO, answer=None)).status == "error"
