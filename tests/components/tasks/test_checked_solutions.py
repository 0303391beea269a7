"""Verifications that a verifier is taught by."""

import re

from posttrain.components.tasks.checked_solutions import CheckedSolutions, verification
from posttrain.grading.verdicts import read_verdicts


def test_every_mark_is_right_and_every_form_can_be_read() -> None:
    tasks = CheckedSolutions(size=300, terms=(2, 4), unworked=0.0).load()
    marks = set()
    for task in tasks:
        problem, solution = str(task.prompt).removesuffix("\nCheck:").split("\nA: ")
        steps, given = solution.split("\n#### ")
        found = read_verdicts(task.demonstrations[0], task.fields["steps"])
        assert found is not None
        by_hand = tuple(eval(step.split("=")[0]) == int(step.split("=")[1]) for step in steps.split("; "))
        assert found.steps == by_hand
        assert found.result == (eval(problem.removeprefix("Q: ")) == int(given))
        assert task.answer == "+-"[not found.result]
        marks.add((found.steps, found.result))
    assert {result for _, result in marks} == {True, False} and len(marks) > 5


def test_a_slip_in_the_middle_and_a_right_step_after_it() -> None:
    assert verification(" 47+35=92; 92-8=84\n#### 84", "74") == (" 47+35=82 -; 92-8=84 +\n#### -", 2)
    assert verification(" 3-9=-6; -6+12=6\n#### 6", "6") == (" 3-9=-6 +; -6+12=6 +\n#### +", 2)


def test_results_without_working_are_worked_out_and_marked_once() -> None:
    for task in CheckedSolutions(size=40, unworked=1.0).load():
        assert re.fullmatch(r"Q: [^\n]+\nA: #### -?\d+\nCheck:", str(task.prompt))
        assert task.fields["steps"] == 1 and read_verdicts(task.demonstrations[0], 1) is not None
