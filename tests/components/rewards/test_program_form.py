"""Ratings of programs by hand, and that the best form of each preference is rated above the other one."""

import pytest

from posttrain.components.rewards.program_form import ProgramForm, rating
from posttrain.components.tasks.styled_programs import FORMS, written
from posttrain.errors import UserError
from posttrain.types import Task


@pytest.mark.parametrize(
    ("program", "preference", "value"),
    [
        ("read a b; echo $((a*3+b))", "instruction", 5.0),
        ("read a b; echo $((a*3))", "instruction", 1 + 4 * 2 / 3),
        ("read a b; echo $((a*3+b))", "explanation", 1.0),
        ("# read\nread a b\n# sum\necho $((a*3+b))", "explanation", 5.0),
        ("# a\n# b\n# c\necho $((a))", "explanation", 5.0),
        ("for i in 1 2; do :; done; read a b; echo $((a*3+b))", "complexity", 3.0),
        ("read left right; echo $((left*3+right))", "readability", 5.0),
        ("read le ri; echo $((le*3+ri))", "readability", 2.0),
        ("read a b; echo $((a * 3+b))", "style", 3.0),
        ("read a b; echo $((a * 3 + b))", "style", 5.0),
        ("echo a*3+b # no program", "complexity", 1.0),
        ("", "style", 1.0),
    ],
)
def test_by_hand(program: str, preference: str, value: float) -> None:
    assert rating(program, preference, "a*3+b") == pytest.approx(value)


def test_the_first_principle_of_each_preference_leads_to_the_better_form() -> None:
    for preference, forms in FORMS.items():
        first, second = (rating(written(("a", "*", "3", "+", "b"), f), preference, "a*3+b") for f in forms.values())
        assert first == 5.0 > second


def test_a_preference_without_a_measure_is_refused() -> None:
    with pytest.raises(UserError, match="'styl'; did you mean 'style'"):
        ProgramForm().check([Task(key="t", prompt="P", fields={"preference": "styl"})])
