import re
from random import Random

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.components.annotators.noise import Noise
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.worked_solutions import SLIPS, WorkedSolutions, slipped
from posttrain.grading.expressions import evaluate


def steps_of(working: str) -> list[tuple[str, int]]:
    steps, _ = working.strip().split("\n#### ")
    return [(question, int(result)) for question, _, result in (step.partition("=") for step in steps.split("; "))]


class Scripted(Random):
    """A random generator that puts the slip in a given step, by a given amount."""

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
    tasks = WorkedSolutions(size=80, terms=(2, 5)).load()
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
    tasks = WorkedSolutions(size=400, annotators=(Noise(rate=0.25, spread=0.0),)).load()
    wrong = [task for task in tasks if task.preferences[0].rejected == task.demonstrations[0]]
    assert 60 < len(wrong) < 140


def test_an_answer_at_once_can_be_what_is_rejected() -> None:
    for task in WorkedSolutions(size=20, rejected="unworked").load():
        assert task.preferences[0].chosen == task.demonstrations[0]
        assert task.preferences[0].rejected == f" #### {task.answer}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "workings"}, "the tasks 'workings' was renamed: write worked_solutions"),
        ("checked_workings", "the tasks 'checked_workings' was renamed: write checked_solutions"),
        ({"kind": "worked_solutions", "wrong_share": 0.5}, "write annotators=[{kind: noise, rate: ..., spread: 0}]"),
        ({"kind": "tastes", "noise": 0.5}, "write annotators=[{kind: noise, rate: ..., spread: 0}]"),
        ({"kind": "graded_replies", "missing": 0.5}, "write annotators=[{kind: missing, rate: ...}]"),
        ({"kind": "ideas", "noise": 0.5}, "write annotators=[{kind: noise, spread: ..., shape: normal}]"),
        (
            {"kind": "reviewed_replies", "noise": 0.5},
            "[[{kind: noise, rate: ..., spread: 0}, feedback]]",
        ),
        ({"kind": "reviewed_replies", "annotators": 3}, "a list with an entry for each of them"),
        ({"kind": "primer", "working": 0.5}, "Primer.working was renamed: write worked"),
        ({"kind": "two_modes", "deviation": 0.5}, "TwoModes.deviation was renamed: write std"),
    ],
)
def test_old_names_are_refused_with_the_new_ones(given: object, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        TypeAdapter(Tasks).validate_python(given)
