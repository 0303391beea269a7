"""Suites of tests are rewarded for the wrong solutions that they kill, and cheats are not."""

from collections.abc import Sequence
from typing import Any

import pytest

from posttrain.components.rewards import suite as suite_module
from posttrain.components.rewards.suite import Suite
from posttrain.components.tasks.suites import Suites
from posttrain.errors import UserError
from posttrain.sandbox import Limits
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all
from tests.components.rewards.programs import tier_for

FIELDS = {
    "correct": ["def f(x):\n    return abs(x)", "def f(x):\n    return max(x, -x)"],
    "wrong": ["def f(x):\n    return x", "def f(x):\n    return -x", "def f(x):\n    raise ValueError"],
}
TASK = Task(key="abs", prompt="Test f.", fields=FIELDS)


@pytest.fixture(scope="module")
def reward() -> Suite:
    made = Suite(limits=Limits(cpu_s=2.0, wall_s=120.0), weakest=tier_for())
    made.prepare()
    return made


@pytest.mark.slow
def test_shares_by_hand(reward: Suite) -> None:
    """f(2) kills the negative and the one that raises, f(-2) the identity and the one that raises; f(0) only that."""
    texts = ["assert f(0) == 0", "assert f(2) == 2", "Here:\n```\nassert f(-2) == 2\nassert f(2) == 2\n```\nDone.", ""]
    scores = [judge(reward, text, TASK) for text in texts]
    assert [score.value for score in scores] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.0])
    assert [score.status for score in scores] == ["wrong", "wrong", "ok", "wrong"]
    whole = Suite(partial=False, weakest=reward.weakest)
    assert [judge(whole, text, TASK).value for text in texts[1:3]] == [0.0, 1.0]


CHEATS = {
    "rejects all": "assert False",
    "a wrong result": "assert f(2) == 3\nassert f(-2) == 2",
    "the source": "import inspect\nassert 'abs' in inspect.getsource(f)",
    "the clock": "import time\nassert f(time.time()) == 1",
    "an exit": "import os\nos._exit(1)",
    "a name for the result": "assert f(2) == f(2)",
    "a raise": "raise AssertionError",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
def test_cheats_have_nothing(reward: Suite, name: str) -> None:
    assert judge(reward, CHEATS[name], TASK).value == 0.0


@pytest.mark.slow
def test_copies_add_nothing_and_hanging_solutions_end(reward: Suite) -> None:
    once, often = (judge(reward, "assert f(2) == 2\n" * n, TASK) for n in (1, 50))
    assert once.value == often.value and often.parts["tests"].value == 1.0
    hanging = Task(key="h", prompt="", fields={**FIELDS, "wrong": ["def f(x):\n    while True: pass"]})
    assert judge(Suite(limits=Limits(cpu_s=0.3), weakest=reward.weakest), "assert f(2) == 2", hanging).value == 1.0


@pytest.mark.slow
def test_a_lone_wrong_reference_is_outvoted(reward: Suite) -> None:
    """One of two solutions that are given as correct is not: no test on which they differ has a reward."""
    fields = {**FIELDS, "correct": [FIELDS["correct"][0], "def f(x):\n    return x"]}
    poisoned = Task(key="p", prompt="", fields=fields)
    assert [judge(reward, f"assert f(-2) == {n}", poisoned).value for n in (2, -2)] == [0.0, 0.0]


@pytest.mark.slow
def test_demonstrations_kill_all(reward: Suite) -> None:
    for task in Suites(size=3, faults=5, inputs=50).load():
        assert judge(reward, task.demonstrations[0], task).value == 1.0


def test_a_task_without_two_correct_solutions_is_refused() -> None:
    with pytest.raises(UserError, match="two or more independent solutions"):
        Suite().check([Task(key="a", prompt="", fields={**FIELDS, "correct": ["x"]})])
    Suite().check([TASK])


@pytest.mark.slow
def test_suites_of_a_group_are_run_together_and_scored_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = Suite(limits=Limits(cpu_s=0.5, wall_s=120.0), weakest=tier_for())
    hanging = "def f(x):\n    while x == 7: pass\n    return x"
    other = Task(key="o", prompt="", fields={**FIELDS, "wrong": [*FIELDS["wrong"], hanging]})
    texts = [f"assert f({n}) == {abs(n)}" for n in range(-3, 8)] + ["assert f(2) == 2  # again", "", "assert f(2) == 3"]
    asked = [*((text, other) for text in texts), *((text, TASK) for text in texts[:2])]
    rows = [attempt(text, task) for text, task in asked]
    alone = [judge(reward, text, task) for text, task in asked]
    starts: list[int] = []
    real = suite_module.called_each

    async def counted(codes: Sequence[str], suites: Sequence[Sequence[str]], *rest: Any) -> Any:
        starts.append(len(suites))
        return await real(codes, suites, *rest)

    monkeypatch.setattr(suite_module, "called_each", counted)
    found = score_all(reward, *rows)
    assert [(s.value, s.status, s.explanation) for s in found] == [(s.value, s.status, s.explanation) for s in alone]
    assert sorted(starts) == [2, 3, 8], "eleven different lists of calls, eight in a sandbox, and two of another task"
