"""Draws in proportion to one minus the success rate."""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from posttrain.components.curricula import State
from posttrain.components.curricula.prioritized import Prioritized
from posttrain.types import Group, Score, Task
from tests.builders import trajectory

POOL = [Task(key=key, prompt="") for key in "abcd"]


def visit(key: str, rewards: list[float]) -> Group:
    of = Task(key=key, prompt="")
    return Group(key=key, trajectories=tuple(trajectory(reward=r, of=of) for r in rewards))


def known(success: Mapping[str, float]) -> State:
    """A state in which all tasks were asked, and some have a success rate."""
    success_P = np.array([success.get(task.key, np.nan) for task in POOL])
    return {"success": success_P, "asked": {task.key: place for place, task in enumerate(POOL)}}


def rates(state: State) -> dict[str, float]:
    """Success rates of the tasks that were drawn."""
    return {task.key: rate for task, rate in zip(POOL, state["success"].tolist(), strict=True) if not math.isnan(rate)}


def drawn(state: State, draws: int = 20_000) -> dict[str, float]:
    _, chosen = Prioritized().select(state, POOL, draws, seed=0, step=0)
    counts = Counter(pick.task.key for pick in chosen)
    return {task.key: counts[task.key] / draws for task in POOL}


def test_frequency_is_proportional_to_failure() -> None:
    """Success 0.25, 0.5, 1 and never tried: weights 0.75, 0.5, 0 and 1 of 2.25."""
    shares = drawn(known({"a": 0.25, "b": 0.5, "c": 1.0}))
    assert shares["c"] == 0.0
    expected = {"a": 0.75 / 2.25, "b": 0.5 / 2.25, "d": 1.0 / 2.25}
    assert {key: shares[key] for key in expected} == pytest.approx(expected, abs=0.015)


def test_where_everything_is_solved_all_are_equally_likely() -> None:
    shares = drawn(known(dict.fromkeys("abcd", 1.0)))
    assert shares == pytest.approx(dict.fromkeys("abcd", 0.25), abs=0.015)


def test_success_is_a_running_mean_of_visits() -> None:
    """3 of 4; then 1 of 4 at rate 0.25: 0.75 * 0.75 + 0.25 * 0.25. The other task stays."""
    curriculum = Prioritized(rate=0.25)
    first = rates(curriculum.observe(known({"b": 0.5}), [visit("a", [1, 1, 0, 1])]))
    assert first == {"b": 0.5, "a": 0.75}
    second = rates(curriculum.observe(known(first), [visit("a", [0, 0, 1, 0])]))
    assert second == {"b": 0.5, "a": pytest.approx(0.625)}
    assert rates(Prioritized(rate=1.0).observe(known(first), [visit("a", [0, 0])]))["a"] == 0.0


def test_a_task_twice_in_a_step_is_one_visit() -> None:
    state = Prioritized().observe(known({}), [visit("a", [1, 1]), visit("a", [0, 0, 0, 0])])
    assert rates(state) == {"a": pytest.approx(1 / 3)}


def test_right_is_what_was_scored_right_whatever_the_reward() -> None:
    of = Task(key="a", prompt="")
    scores = [Score(value=0.1, status="ok"), Score(value=0.9, status="wrong")]
    group = Group(trajectories=tuple(trajectory(of=of).scored(score) for score in scores))
    assert rates(Prioritized().observe(known({}), [group])) == {"a": 0.5}


def test_failed_scores_are_no_failures() -> None:
    failed = trajectory(of=Task(key="a", prompt="")).scored(Score(value=math.nan, status="error"))
    mixed = Group(trajectories=(*visit("a", [1, 0]), failed, failed))
    assert rates(Prioritized().observe(known({}), [mixed])) == {"a": 0.5}
    assert rates(Prioritized().observe(known({}), [Group(trajectories=(failed,))])) == {}


def test_tasks_that_cannot_be_solved_take_more_and_more_of_the_draws() -> None:
    """The known weakness: 'd' never succeeds, and the others always do from their first visit on."""
    curriculum, state = Prioritized(rate=0.5), Prioritized().start()
    for step in range(30):
        state, chosen = curriculum.select(state, POOL, 8, seed=1, step=step)
        keys = [pick.task.key for pick in chosen]
        state = curriculum.observe(state, [visit(key, [float(key != "d")] * 4) for key in keys])
    assert rates(state) == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}
    assert drawn(state)["d"] == 1.0


def test_hard_tasks_only_in_the_second_phase() -> None:
    """Success 0.25, 0.5, 0.75 and never tried: from step 2 on the third is not drawn, unless nothing is hard."""
    curriculum = Prioritized(hard_from=2)
    state = known({"a": 0.25, "b": 0.5, "c": 0.75})
    before, after = (
        {pick.task.key for pick in curriculum.select(state, POOL, 500, seed=0, step=step)[1]} for step in (1, 2)
    )
    assert before == {"a", "b", "c", "d"} and after == {"a", "b", "d"}
    easy = known({"a": 0.6, "b": 0.9, "c": 1.0, "d": 0.7})
    assert {pick.task.key for pick in curriculum.select(easy, POOL, 500, seed=0, step=9)[1]} == {"a", "b", "d"}
