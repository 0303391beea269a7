"""Inputs that should reach a line: what is read, what is run, and what cannot be forged."""

from dataclasses import replace

import pytest

from posttrain.components.rewards.branch_distance import BranchDistance, literals
from posttrain.errors import UserError
from posttrain.sandbox import Limits
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, score_all
from tests.components.rewards.programs import tier_for

SOURCE = """def f(a, b):
    if a == 12:
        if b >= a + 3:
            return 1 // (b - 20)
"""
TASK = Task(key="t", prompt="f(a,b) a==12 b>=a+3\n:", fields={"source": SOURCE, "line": 4})


def scores(*texts: str, of: Task = TASK, reward: BranchDistance | None = None) -> list[Score]:
    reward = replace(reward or BranchDistance(), weakest=tier_for())
    return score_all(reward, *(attempt(text, of) for text in texts))


@pytest.mark.slow
def test_values() -> None:
    """Reached, reached and crashed, two short of the second guard, two short of the first, other inputs."""
    texts = [" 12 15", "#### 12, 20", "so\n12 13", "10 99", "12", "12 15 1", "", "none", "a b", "12 15\nx", "'x', 3"]
    found = scores(*texts)
    values = [score.value for score in found]
    assert values[:2] == [1.0, 1.0] and [s.status for s in found[:2]] == ["ok", "ok"]
    assert values[2:4] == pytest.approx([(1 + 0.999 / 3) / 2, 0.999 / 3 / 2])
    assert values[4:10] == [0.0] * 6 and values[10] == pytest.approx(0.999 / 2 / 2)
    assert [s.parts["crashed"].value for s in found[:3]] == [0.0, 1.0, 0.0]
    assert all(score.status == "wrong" for score in found[2:])
    passed = scores(*texts[:4], reward=BranchDistance(credit="passed"))
    assert [score.value for score in passed] == [1.0, 1.0, 0.5, 0.0]
    target = scores(*texts[:4], reward=BranchDistance(credit="target"))
    assert [score.value for score in target] == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.slow
def test_hangs_and_ends_are_no_errors_and_leave_the_others() -> None:
    """An input that hangs keeps what it passed; one that ends the process, or takes all its time, has 0."""
    source = """import os
def f(a):
    if a == 1:
        while True:
            pass
    if a == 2:
        os._exit(0)
    if a == 3:
        a = 9 ** 9 ** 9
    if a > 3:
        return 1
"""
    task = Task(key="t", prompt="p", fields={"source": source, "line": 11})
    found = scores("5", "1", "2", "3", "4", of=task, reward=BranchDistance(limits=Limits(cpu_s=1.0)))
    assert [score.value for score in found] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert [score.parts["hung"].value for score in found] == [0.0, 1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("1 2", (1, 2)), ("1, 2", (1, 2)), ("1,2,", (1, 2)), ("-1 2.5", (-1, 2.5)), ("'a b' 3", None)),
        *(("'a b', 3", ("a b", 3)), ("", None), ("f(1)", None), ("[1, 2], 3", ([1, 2], 3)), ("__import__('os')", None)),
        *(("(" * 5000, None), ("9" * 3000, None), ("x\0", None)),
    ],
)
def test_literals(text: str, found: tuple[object, ...] | None) -> None:
    assert literals(text) == found


def test_refuses_tasks_without_a_line() -> None:
    for fields in ({}, {"source": SOURCE}, {"source": SOURCE, "line": 77}, {"source": 3, "line": 2}):
        with pytest.raises(UserError, match="task 't'"):
            BranchDistance().check([Task(key="t", prompt="p", fields=fields)])
    assert score_all(BranchDistance(), attempt("x", Task(key="t", prompt="p")))[0].status == "error"
    BranchDistance().check([TASK])
