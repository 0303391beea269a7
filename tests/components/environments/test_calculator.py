import pytest

from posttrain.components.environments.calculator import Calculator
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="sum", prompt="Q: 47*35\nA:", answer="1645")


def answer(action: str, **settings: object) -> tuple[str, bool, bool]:
    _, (outcome,), _, _ = play(Calculator(**settings), TASK, [action])  # type: ignore[arg-type]
    return outcome.observation.text, outcome.valid, outcome.done


@pytest.mark.parametrize(
    ("call", "result"),
    [("47*35", "1645"), ("82-8", "74"), ("7-12", "-5"), ("7/2", "7/2"), ("(1+2)*3", "9"), (" 6 / 3 ", "2")],
)
def test_a_call_at_the_end_of_a_turn_is_answered_by_its_value(call: str, result: str) -> None:
    assert answer(f"Let me see: <<{call}>>") == (result, True, False)


@pytest.mark.parametrize("call", ["", "1/0", "two", "2**3", "1" * 501, "9" * 15 + "*" + "9" * 15, "__import__('os')"])
def test_what_has_no_value_is_answered_by_error(call: str) -> None:
    assert answer(f"<<{call}>>") == ("error", False, False)
    _, (outcome,), _, _ = play(Calculator(invalid_penalty=0.5), TASK, [f"<<{call}>>"])
    assert outcome.reward == -0.5


@pytest.mark.parametrize("action", ["", "#### 1645", "<<47*35", "47*35>>", "<<47*35>> is it", "<<1+1>>2\n#### 2"])
def test_a_turn_that_does_not_end_with_a_call_is_the_last(action: str) -> None:
    assert answer(action) == ("", True, True)


def test_only_the_last_call_of_a_turn_counts() -> None:
    assert answer("<<1+<<2+2>>") == ("4", True, False)


def test_calls_are_counted_and_no_rollout_is_scored() -> None:
    _, outcomes, verdict, measures = play(Calculator(), TASK, ["<<1+1>>", "<<1/0>>", "<<2+2>>", "#### 4"])
    assert len(outcomes) == 4
    assert verdict is None
    assert measures == {"calls": 3.0, "failed_calls": 1.0}


def test_other_marks() -> None:
    own = Calculator(opening="<tool>", closing="</tool>")
    assert own.stop == ("</tool>",)
    assert play(own, TASK, ["<tool>2+2</tool>"])[1][0].observation.text == "4"
