"""Calls and proposals within a budget, by hand."""

import pytest

from posttrain.components.environments.budgeted import Budgeted, agrees
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="6 times 7?", answer="42")
CALL = "<execute>6*7</execute>"


def solution(text: str) -> str:
    return f"<solution>{text}</solution>"


def test_calls_proposals_and_invalid_turns_share_a_budget() -> None:
    first, outcomes, verdict, measures = play(Budgeted(steps=4), TASK, [CALL, "hm", solution("41"), solution("42")])
    assert first.text == "\n5 steps, 2 proposals left.\n".replace("5", "4")
    assert outcomes[0].observation.text == "\n42 3 steps, 2 proposals left.\n"
    assert outcomes[2].observation.text == "\nWrong. 1 steps, 1 proposals left. Propose an answer.\n"
    assert [outcome.done for outcome in outcomes] == [False, False, False, True]
    assert verdict is not None and verdict.solved
    left = [{"calls": 3, "proposals": 2}, {"calls": 2, "proposals": 2}, {"calls": 1, "proposals": 1}]
    assert [outcome.left for outcome in outcomes] == [*left, {"calls": 0, "proposals": 0}]
    assert measures == {"proposals": 2.0, "calls": 1.0, "invalid": 1.0}


@pytest.mark.parametrize(
    ("turns", "steps", "solved", "used"),
    [
        ([solution("42")], 1, True, 1),  # success is checked first
        ([solution("41"), solution("40"), solution("42")], 5, False, 2),  # both proposals are used up
        (["hm", "hm", solution("42")], 2, False, 2),  # both steps are
        (["<solution>42", solution("42")], 5, True, 2),  # an unclosed tag costs a proposal
        (["<solution>42", "<solution>42", solution("42")], 5, False, 2),
        ([CALL + CALL, solution("42")], 5, True, 2),  # two bodies are one call
    ],
)
def test_the_end(turns: list[str], steps: int, solved: bool, used: int) -> None:
    _, outcomes, verdict, _ = play(Budgeted(steps=steps), TASK, turns)
    assert len(outcomes) == used and outcomes[-1].done
    assert verdict is not None and verdict.solved == solved


def test_feedback_only_while_the_episode_goes_on() -> None:
    told = [o.observation.text for o in play(Budgeted(feedback="sign"), TASK, [solution("41"), solution("43")])[1]]
    assert "Too small." in told[0] and "Too" not in told[1]
    told = [o.observation.text for o in play(Budgeted(feedback="verdict"), TASK, [CALL, solution("1")])[1]]
    assert " GOOD " in told[0] and " BAD " in told[1]


def test_errors_of_a_call_are_answers_and_count() -> None:
    _, (outcome,), _, measures = play(Budgeted(), TASK, ["<execute>6*\n7</execute>"])
    assert outcome.observation.text.startswith("\nError.\n7 ") and outcome.valid and measures["calls"] == 1.0


@pytest.mark.parametrize(
    ("proposed", "answer", "exact", "lenient"),
    [
        ("42", "42", True, True),
        ("42.0", "42", True, True),
        ("41", "42", False, True),  # within 5 %
        ("39", "42", False, False),
        ("Cat, dog or cow", "dog", False, True),  # a list of candidates
        (" Dog ", "dog", True, True),
        ("", "dog", False, False),
    ],
)
def test_answers(proposed: str, answer: str, exact: bool, lenient: bool) -> None:
    assert agrees(proposed, answer) == exact
    assert agrees(proposed, answer, lenient=True) == lenient


def test_a_task_without_an_answer_is_refused() -> None:
    with pytest.raises(UserError, match="has no answer to compare with"):
        Budgeted().check([Task(key="a", prompt="")])
