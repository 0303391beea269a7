"""Levels from k answers, equal shares, the share of groups that teach."""

import pytest

from posttrain.components.rewards.choice import Choice
from posttrain.components.selections.by_level import ByLevel, level_of
from posttrain.types import Task

TASKS = [Task(key=str(n), prompt=f"question {n}") for n in range(12)]
RIGHT = [5, 5, 5, 5, 5, 5, 3, 3, 3, 0, 0, None]


def chosen(**settings: object) -> list[int]:
    found = ByLevel(reward=Choice(), **settings).choose(TASKS, RIGHT)  # type: ignore[arg-type]
    return [int(task.key) for task in found.tasks]


def test_all_right_is_the_easiest_and_none_the_hardest() -> None:
    assert [level_of(right, 5) for right in (5, 4, 0)] == [1, 2, 6] and level_of(8, 8) == 1 and level_of(0, 8) == 9


def test_as_many_of_each_level() -> None:
    kept = chosen(count=6)
    assert (
        kept == sorted(kept)
        and [sum(low <= n < high for n in kept) for low, high in ((0, 6), (6, 9), (9, 11))] == [2] * 3
    )
    assert 11 not in chosen(), "what could not be scored has no level"


def test_single_levels_and_counts() -> None:
    assert set(chosen(levels=(1,))) == set(range(6)) and set(chosen(levels=(6, 3), count=4)) < {6, 7, 8, 9, 10}
    assert len(chosen(levels=(3, 6), count=5)) == 5, "what a level lacks is taken from the others"
    assert chosen(levels=(2,)) == []


def test_sorted_by_level() -> None:
    """Six tasks are all right, three are 3 times right, two never; those of a level keep their order."""
    mixed = [TASKS[n] for n in (9, 6, 0, 7, 1)]
    found = ByLevel(reward=Choice(), sort=True).choose(mixed, [0, 3, 5, 3, 5])
    assert [task.key for task in found.tasks] == ["0", "1", "6", "7", "9"]
    assert ByLevel(reward=Choice(), sort=True).orders and not ByLevel(reward=Choice()).orders


def test_the_draw_is_a_function_of_the_seed() -> None:
    assert chosen(levels=(1,), count=3) == chosen(levels=(1,), count=3)
    assert len({tuple(chosen(levels=(1,), count=3, seed=seed)) for seed in range(8)}) > 1


def test_the_share_of_groups_with_an_advantage() -> None:
    """Levels 1 and 6 have none; 3 of 5 right gives 1 - 0.6^8 - 0.4^8 = 0.98; a third of those kept, 3 of 11 of all."""
    summary = ByLevel(reward=Choice(), count=6).choose(TASKS, RIGHT).summary
    assert "6 of 12 tasks of levels 1, 3, 6" in summary
    informative = 1 - 0.6**8 - 0.4**8
    assert f"probability {informative / 3:.2f}, {informative * 3 / 11:.2f} of all" in summary
    assert informative == pytest.approx(0.98, abs=0.005)
