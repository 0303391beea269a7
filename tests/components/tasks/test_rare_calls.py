"""Demonstrations that answer at once, and some that call a calculator."""

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.policies import Policies
from posttrain.components.tasks.rare_calls import RareCalls
from posttrain.errors import UserError

PRODUCTS = Arithmetic(size=400, terms=(2, 2), digits=(2, 2), operators="*")


def test_one_in_ten_has_a_call() -> None:
    tasks = RareCalls(tasks=PRODUCTS).load()
    called = [task for task in tasks if "<<" in task.demonstrations[0]]
    assert 20 <= len(called) <= 60
    asked = str(called[0].prompt).removeprefix("Q: ").partition("\n")[0]
    assert called[0].demonstrations == (f"\nLet me calculate.<<{asked}>>\n#### {called[0].answer}",)
    plain = next(task for task in tasks if "<<" not in task.demonstrations[0])
    assert plain.demonstrations == (f"\n#### {plain.answer}",)


def test_the_share_may_be_none_or_all() -> None:
    for share in (0.0, 1.0):
        tasks = RareCalls(tasks=PRODUCTS, share=share).load()
        assert {"<<" in task.demonstrations[0] for task in tasks} == {share == 1.0}


def test_other_prompts_are_refused() -> None:
    with pytest.raises(UserError, match="a prompt as in"):
        RareCalls(tasks=Policies(size=2)).load()
