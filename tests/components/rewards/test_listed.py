"""Answers that a task lists."""

import pytest

from posttrain.components.rewards.listed import Listed
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge

HALF = Task(key="half", prompt="What is 1/4 + 1/4?", answer="1/2", fields={"forms": ["1/2", "0.5", "one half"]})


@pytest.mark.parametrize("text", ["1/2", r"so \boxed{0.5}", r"\boxed{One  half.}"])
def test_any_form_is_right(text: str) -> None:
    assert judge(Listed(), text, HALF).value == 1.0


@pytest.mark.parametrize("text", ["", "2/4", r"\boxed{1/2 or 3/4}", r"\boxed{0.55}", "0.5 is the answer"])
def test_anything_else_is_wrong(text: str) -> None:
    score = judge(Listed(), text, HALF)
    assert (score.value, score.status) == (0.0, "wrong")


def test_one_that_looks_for_a_right_answer_takes_a_list_of_values() -> None:
    weak = Listed(contains=True)
    assert judge(weak, r"\boxed{3/4 or 1/2}", HALF).value == 1.0
    assert judge(weak, r"\boxed{1/25}", HALF).value == judge(weak, r"\boxed{11/2}", HALF).value == 0.0


def test_a_task_without_the_list_is_refused_before_sampling() -> None:
    with pytest.raises(UserError, match=r"task 't' has no field 'forms' with a list of texts.*it has other"):
        Listed().check([Task(key="t", prompt="?", fields={"other": 1})])
    assert judge(Listed(), "1/2", Task(key="t", prompt="?")).status == "error"
