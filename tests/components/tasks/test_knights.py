"""Puzzles with one solution, and traces that try and return."""

import re
from itertools import product

import pytest

from posttrain.components.rewards.knights import Knights as Reward
from posttrain.components.tasks.knights import Knights, Words, search, solutions
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASKS = Knights(size=60, people=(2, 4)).load()


def read(line: str) -> tuple[str, list[str], bool]:
    """Speaker, people and claim of a line of a prompt, read anew."""
    speaker, words = line.split(": ")
    names = re.findall(r"\b[A-G]\b", words)
    return speaker, names, words.endswith(("knight", "are alike"))


@pytest.mark.parametrize("task", TASKS[:20], ids=lambda task: task.key)
def test_exactly_one_assignment_agrees_with_the_prompt(task: Task) -> None:
    """By brute force over what the prompt states, without the generator's own code."""
    lines = [read(line) for line in str(task.prompt).splitlines()[1:-1]]
    names = [speaker for speaker, _, _ in lines]
    found = []
    for kinds in product(("knight", "knave"), repeat=len(names)):
        of = dict(zip(names, kinds, strict=True))
        says = [
            (of[who[0]] == "knight") == claim if len(who) == 1 else (of[who[0]] == of[who[1]]) == claim
            for _, who, claim in lines
        ]
        if all(true == (of[name] == "knight") for name, true in zip(names, says, strict=True)):
            found.append(of)
    assert found == [task.fields["kinds"]]


def test_a_trace_by_hand() -> None:
    """A states that B is a knave, B that both are alike: if A is a knight, B is a knave, and they differ."""
    puzzle = (Words((1,), False), Words((0, 1), True))
    assert solutions(puzzle) == [(True, False)]
    assert search(puzzle) == ["A knight", "B knight? A fails", "B knave? right"]


def test_a_trace_that_returns() -> None:
    """Both say that they differ: with A a knight neither kind of B agrees."""
    assert search((Words((0, 1), False), Words((0, 1), False))) == [
        "A knight",
        "B knight? A fails",
        "B knave? B fails",
        "return",
        "A knave",
        "B knight? A fails",
        "B knave? right",
    ]


def test_demonstrations_are_right_and_a_larger_size_begins_alike() -> None:
    assert all(judge(Reward(), task.demonstrations[0], task).value == 1.0 for task in TASKS)
    assert any("return" in task.demonstrations[0] for task in TASKS)
    assert Knights(size=10, people=(2, 4)).load() == TASKS[:10]
    assert {len(task.fields["kinds"]) for task in TASKS} == {2, 3, 4}
