"""Demonstrations with redundant lines, and the answer in a box inside the thoughts."""

import re

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.spelt import Spelt
from posttrain.components.tasks.wordy import Wordy
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.errors import UserError
from tests.components.rewards.judging import judge

SUMS = Arithmetic(size=40, terms=(3, 4))
FORM = re.compile(r"<think>(.*)\nso \\boxed\{(-?\d+)\}</think>")


@pytest.mark.parametrize("most", [0, 2])
def test_steps_are_written_again_up_to_a_number_of_times(most: int) -> None:
    repeats = set()
    for before, task in zip(SUMS.load(), Wordy(tasks=SUMS, most=most).load(), strict=True):
        (text,) = task.demonstrations
        form = FORM.fullmatch(text)
        assert form is not None and form[2] == task.answer
        lines = form[1].split("; ")
        steps = [line for line in lines if not line.startswith("check ")]
        assert steps == before.demonstrations[0].strip().partition("\n")[0].split("; ")
        repeats |= {lines.count(f"check {step}") for step in steps if steps.count(step) == 1}
        assert judge(Match(), text, task).value == 1.0
    assert repeats == set(range(most + 1))


def test_the_draw_is_the_tasks_own() -> None:
    assert Wordy(tasks=SUMS).load()[:5] == Wordy(tasks=Arithmetic(size=5, terms=(3, 4))).load()
    assert Wordy(tasks=SUMS, seed=1).load() != Wordy(tasks=SUMS).load()


def test_a_demonstration_without_a_mark_is_refused() -> None:
    bare = Wordy(tasks=Spelt(tasks=WorkedSolutions(size=2)))
    assert bare.load()
    from posttrain.components.tasks.primer import Primer

    with pytest.raises(UserError, match="only demonstrations that end with '#### answer'"):
        Wordy(tasks=Primer(size=5)).load()
