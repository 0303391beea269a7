"""Batches by difficulty: what is measured when, the order, and the share of pairs that turned."""

import asyncio

import numpy as np
import pytest

from posttrain.components.curricula import State
from posttrain.components.curricula.resorted import Resorted, inversions
from posttrain.types import Group, Task
from tests.components.curricula.helpers import TableProbe, choose, failed

POOL = [Task(key=f"t{i}", prompt=f"{i}?") for i in range(6)]


class Table(TableProbe):
    """Rates by task, of four rollouts, that a test may change; negative ones cannot be scored."""

    def __init__(self, *solved: int) -> None:
        self.solved = list(solved)
        super().__init__(lambda of: [1.0] * self.now(of) + [0.0] * (4 - self.now(of)))

    def now(self, of: Task) -> int:
        return self.solved[int(of.key[1:])]

    async def collect(self, tasks: object, n: int | None) -> list[Group]:
        found = await super().collect([t for t in tasks if self.now(t) >= 0], n)  # type: ignore[attr-defined]
        self.asked[-1] = ("collect", [t.key for t in tasks], n)  # type: ignore[attr-defined]
        known = {group.key: group for group in found}
        return [known.get(t.key, Group(key=t.key, trajectories=())) for t in tasks]  # type: ignore[attr-defined]


def keys(picks: object) -> list[str]:
    return [pick.task.key for pick in picks]  # type: ignore[attr-defined]


def test_a_batch_is_sorted_anew_when_it_begins_and_keeps_its_tasks() -> None:
    probe = Table(0, 4, 2, 1, 3, 1)  # from easy to hard: 1, 4, 2, then 3, 5, 0
    curriculum = Resorted(batches=2, n=4)
    state, picks = choose(curriculum, curriculum.start(), POOL, 2, probe, step=0)
    assert keys(picks) == ["t1", "t4"] and probe.asked == [("collect", [t.key for t in POOL], 4)]
    assert [(p.weight, p.reason) for p in picks] == [(0.0, "batch 1"), (0.25, "batch 1")]
    probe.solved = [4, 0, 0, 1, 0, 3]  # what was learned turns the second batch over
    state, picks = choose(curriculum, state, POOL, 1, probe, step=1)
    assert keys(picks) == ["t2"] and len(probe.asked) == 1, "the first batch stays as it was sorted"
    state, picks = choose(curriculum, state, POOL, 2, probe, step=2)
    assert keys(picks) == ["t0", "t5"] and probe.asked[-1] == ("collect", ["t3", "t5", "t0"], 4)
    assert curriculum.report(state) == {"sorted_batches": 2.0, "inversions": pytest.approx(2 / 3)}
    state, picks = choose(curriculum, state, POOL, 2, probe, step=3)
    assert keys(picks) == ["t3", "t1"], "the first batch again, in the order of the present"
    assert probe.asked[-1] == ("collect", ["t1", "t4", "t2"], 4) and len(probe.asked) == 3


def test_a_choice_over_two_batches_sorts_both() -> None:
    probe = Table(0, 1, 2, 3, 4, 4)
    curriculum = Resorted(batches=3)
    _, picks = choose(curriculum, curriculum.start(), POOL, 6, probe, step=0)
    assert keys(picks) == ["t4", "t5", "t3", "t2", "t1", "t0"] and len(probe.asked) == 3
    assert [p.reason for p in picks] == ["batch 1"] * 2 + ["batch 2"] * 2 + ["batch 3"] * 2


def test_without_sorting_anew_only_the_first_measurement_is_taken() -> None:
    probe = Table(0, 1, 2, 3, 4, 4)
    curriculum = Resorted(batches=3, resort=False)
    _, picks = choose(curriculum, curriculum.start(), POOL, 12, probe, step=0)
    assert keys(picks) == ["t4", "t5", "t3", "t2", "t1", "t0"] * 2 and len(probe.asked) == 1


def test_a_task_that_could_not_be_scored_is_among_the_hardest_or_keeps_its_difficulty() -> None:
    probe = Table(-1, 1, 2, 3, 4, 4)
    curriculum = Resorted(batches=2)
    state, _ = choose(curriculum, curriculum.start(), POOL, 3, probe, step=0)
    assert state["order"].tolist() == [4, 5, 3, 2, 1, 0]
    probe.solved = [4, 4, -1, 0, 0, 0]
    state, picks = choose(curriculum, state, POOL, 3, probe, step=1)
    assert keys(picks) == ["t1", "t0", "t2"] and picks[2].weight == 0.5
    assert failed(POOL[0]).trajectories


def test_inversions_by_hand() -> None:
    old, new = np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.3, 0.1])
    assert inversions(old, new) == pytest.approx(2 / 3)  # (1, 3) and (2, 3); a tie is no turn
    assert inversions(old, old) == 0.0 and inversions(old[:1], new[:1]) == 0.0


def test_more_batches_than_tasks_are_one_task_each() -> None:
    state: State = asyncio.run(
        Resorted(batches=99).look(
            {"taken": 0, "sorted": 0, "inversions": -1.0}, POOL, Table(*[1] * 6), 6, seed=0, step=0
        )
    )
    assert state["sorted"] == 6
