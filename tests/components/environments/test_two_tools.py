"""A search and a calculator, with a limit on calls."""

from posttrain.components.environments.two_tools import TwoTools
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="", fields={"facts": {"kiwi": 47}})


def test_calls_are_answered_and_counted_if_executed() -> None:
    turns = ["<think>so</think><search>kiwi</search>", "<python>47+5</python>", "<answer>52</answer>"]
    _, outcomes, _, measures = play(TwoTools(), TASK, turns)
    assert [o.observation.text for o in outcomes[:2]] == [f" <result>\n{n}\n</result>" for n in (47, 52)]
    assert outcomes[2].done and measures == {"calls": 2.0, "search": 1.0, "python": 1.0}


def test_what_cannot_be_answered_is_an_error_and_not_executed() -> None:
    turns = ["<search>plum</search>", "</search>", "<python>4+</python>"]
    _, outcomes, _, measures = play(TwoTools(), TASK, turns)
    assert all("error" in o.observation.text and not o.valid and not o.done for o in outcomes)
    assert measures == {"calls": 3.0, "search": 0.0, "python": 0.0}


def test_the_fourth_call_ends_the_rollout_without_an_answer() -> None:
    call = "<search>kiwi</search>"
    _, outcomes, _, measures = play(TwoTools(), TASK, [call] * 5)
    assert [o.done for o in outcomes] == [False] * 3 + [True] and outcomes[3].observation.text == ""
    assert measures["search"] == 3.0


def test_only_the_last_call_of_a_turn_counts() -> None:
    _, (outcome,), _, measures = play(TwoTools(), TASK, ["<search>x</search> <result>9</result><search>kiwi</search>"])
    assert "47" in outcome.observation.text and measures["calls"] == 1.0
