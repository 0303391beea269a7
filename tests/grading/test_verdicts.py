"""The form of verifications, and the steps of solutions."""

import pytest

from posttrain.grading.verdicts import Verdicts, read_verdicts, steps_of


def test_marks_are_read_in_order() -> None:
    found = read_verdicts(" 47+35=82 -; 92-8=84 +\n#### -", 2)
    assert found == Verdicts(steps=(False, True), result=False)
    assert read_verdicts(" 1+1=2; 2+2=4 +\n#### +\n", 1) == Verdicts(steps=(True,), result=True), "work without a mark"
    assert read_verdicts(" 1-2=-1 +\n#### +", 1) == Verdicts(steps=(True,), result=True), "a minus is no mark"


@pytest.mark.parametrize("text", ["", "#### +", " +\n#### 4", " 5+\n#### +", " +\n+\n#### +", " +\n#### +; #### -"])
def test_anything_else_is_none(text: str) -> None:
    assert read_verdicts(text, 1) is None


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_another_number_is_none(steps: int) -> None:
    assert read_verdicts(" a +; b +\n#### +", steps) is None


@pytest.mark.parametrize(
    ("solution", "steps"),
    [
        (" 1+2=3; 3+4=7\n#### 7", [" 1+2=3;", " 3+4=7\n#### 7"]),
        (" #### 7", [" #### 7"]),
        (" a; b;", [" a;", " b;"]),
        ("", [""]),
        (";", [";"]),
    ],
)
def test_steps_end_with_the_separator_and_join_to_the_whole(solution: str, steps: list[str]) -> None:
    assert steps_of(solution) == steps
    assert "".join(steps_of(solution)) == solution
