import re
from random import Random

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.workings import SLIPS, Workings, slipped
from posttrain.grading.expressions import evaluate


def steps_of(working: str) -> list[tuple[str, int]]:
    steps, _ = working.strip().split("\n#### ")
    return [(question, int(result)) for question, _, result in (step.partition("=") for step in steps.split("; "))]


class Scripted(Random):
    """Workings in the step and by the amount that it is told."""

    def __init__(self, at: int, off: int) -> None:
        super().__init__(0)
        self._at, self._off = at, off

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return self._at

    def choice(self, _: object) -> int:  # type: ignore[override]
        return self._off


@pytest.mark.parametrize(
    ("at", "off", "wrong"),
    [
        (0, 10, " 47+35=92; 92-8=84\n#### 84"),
        (1, -1, " 47+35=82; 82-8=73\n#### 73"),
    ],
)
def test_a_slip_is_carried_on(at: int, off: int, wrong: str) -> None:
    assert slipped(" 47+35=82; 82-8=74\n#### 74", Scripted(at, off)) == wrong


def test_a_slip_below_zero_reads_as_such() -> None:
    assert slipped(" 3-2=1; 1-9=-8\n#### -8", Scripted(0, -2)) == " 3-2=-1; -1-9=-10\n#### -10"


def test_exactly_one_step_of_the_rejected_working_is_wrong() -> None:
    tasks = Workings(size=80, terms=(2, 5)).load()
    assert [(t.key, t.prompt, t.answer) for t in tasks] == [
        (t.key, t.prompt, t.answer) for t in Arithmetic(size=80, terms=(2, 5)).load()
    ]
    places = set()
    for task in tasks:
        (preference,) = task.preferences
        assert preference.chosen == task.demonstrations[0]
        wrong = [
            i for i, (question, result) in enumerate(steps_of(preference.rejected)) if evaluate(question) != result
        ]
        assert len(wrong) == 1
        places.update(wrong)
        answer = int(re.findall(r"#### (-?\d+)", preference.rejected)[0])
        assert answer - int(task.answer or "") in SLIPS
        assert steps_of(preference.rejected)[-1][1] == answer
    assert places == {0, 1, 2, 3}


def test_careless_annotators() -> None:
    tasks = Workings(size=400, wrong_share=0.25).load()
    wrong = [task for task in tasks if task.preferences[0].rejected == task.demonstrations[0]]
    assert 60 < len(wrong) < 140


def test_an_answer_at_once_can_be_what_is_rejected() -> None:
    for task in Workings(size=20, rejected="unworked").load():
        assert task.preferences[0].chosen == task.demonstrations[0]
        assert task.preferences[0].rejected == f" #### {task.answer}"
