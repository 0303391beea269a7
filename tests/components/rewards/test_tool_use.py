r"""Answers by way of tools: both scales by hand, and what may be taken for the use of a tool."""

from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.environments import Episode
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.tool_use import ToolUse, format_fault, overlap
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, judge, score_all

ZOO = Task(key="zoo", prompt="Who?", answer="the red panda", fields={"answers": ["the red panda", "firefox"]})
SUM = Task(key="sum", prompt="6 times 7?", answer="42")
CALLS = "<search>zoo</search> <result>\nx\n</result><python>6*7</python> <result>\n42\n</result>"


def written(answer: str, calls: str = "") -> str:
    return rf"<think>so</think>{calls}<answer>\boxed{{{answer}}}</answer>"


def scored(text: str, reward: ToolUse, **executed: float) -> Score:
    """The score on the question, with calls that the environment executed."""
    rollout = replace(attempt(text, ZOO), facts=(Episode(measures=executed),))
    (score,) = score_all(reward, rollout)
    return score


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (written("Red panda."), 1.0),  # no article, no case, no full stop
        (written("a firefox"), 1.0),  # the best of several answers
        (written("red fox"), 0.5),  # one word of two in common on both sides
        (written("bear"), 0.0),
        (r"<answer>\boxed{red panda}</answer>", -1.0),  # no thought
        ("<think>so</think><answer>red panda</answer>", -1.0),  # no box
        ("", -1.0),
    ],
)
def test_questions(text: str, value: float) -> None:
    assert judge(ToolUse(), text, ZOO).value == pytest.approx(value)


def test_the_bonus_is_for_executed_calls() -> None:
    both = {"search": 1.0, "python": 2.0}
    assert scored(written("red panda", CALLS), ToolUse(), **both).value == pytest.approx(1.1)
    assert scored(written("red fox", CALLS), ToolUse(), **both).value == pytest.approx(0.6)
    assert scored(written("bear", CALLS), ToolUse(), **both).value == 0.0, "a bonus needs a word in common"
    assert scored(written("red panda", CALLS), ToolUse(), search=1.0, python=0.0).value == 1.0


def test_tags_without_a_call_are_use_only_as_released() -> None:
    typed = r"<think>so </search> </python></think><answer>\boxed{red panda}</answer>"
    assert scored(typed, ToolUse(), search=0.0, python=0.0).value == 1.0
    assert scored(typed, ToolUse(bonus_for="text"), search=0.0, python=0.0).value == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("text", "value"), [(written("42"), 1.0), (written("41"), 0.1), ("42", 0.0), (written("42", "<python>1"), 0.0)]
)
def test_maths(text: str, value: float) -> None:
    assert judge(ToolUse(scale="maths"), text, SUM).value == value


def test_maths_by_another_reward_cut_and_failed() -> None:
    reward = ToolUse(scale="maths", correct=Match(extract=("boxed",)))
    assert judge(reward, written("42"), SUM).value == 1.0
    cut = replace(attempt(written("42"), SUM), stop_reason="length")
    assert [score.value for score in score_all(reward, cut)] == [0.0]
    unanswered: Any = judge(reward, written("42"), Task(key="t", prompt=""))
    assert unanswered.status == "error"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (written("1", CALLS), ""),
        (written("1") + "</think>", "1 <think> and 2 </think>"),
        (written("1") + written("2"), "2 answers"),
        (written("1", "<search>a</search>"), "</search> is not followed by a result"),
        (written("1", "<search>a"), "<search> is not closed"),
        (
            written("1", "<python>1</python> <result>1</result><python>2</python>"),
            "</python> is not followed by a result",
        ),
    ],
)
def test_formats(text: str, fault: str) -> None:
    assert format_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "answer", "f1"),
    [("yes", "yes", 1.0), ("yes he is", "yes", 0.0), ("a b c", "b d", 0.5), ("", "", 0.0), ("the", "a", 0.0)],
)
def test_overlap(text: str, answer: str, f1: float) -> None:
    assert overlap(text, answer) == pytest.approx(f1)
