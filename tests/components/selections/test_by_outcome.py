"""Wrong and right tasks in a ratio, on shares that are written out."""

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.selections.by_outcome import ByOutcome
from posttrain.types import Task


def counts(wrong: int, right: int, /, **settings: int) -> tuple[int, int]:
    """How many wrong and right tasks are kept."""
    tasks = [Task(key=f"t{i}", prompt="p") for i in range(wrong + right)]
    measured = [0.0] * wrong + [1.0] * right
    kept = ByOutcome(reward=Match(), **settings).choose(tasks, measured).tasks
    places = [int(task.key[1:]) for task in kept]
    assert places == sorted(places)
    return sum(place < wrong for place in places), sum(place >= wrong for place in places)


@pytest.mark.parametrize(
    ("given", "kept"),
    [((8, 8), (8, 4)), ((3, 8), (3, 1)), ((9, 2), (4, 2)), ((5, 0), (5, 0)), ((0, 5), (0, 0)), ((0, 0), (0, 0))],
)
def test_two_parts_wrong_to_one_part_right(given: tuple[int, int], kept: tuple[int, int]) -> None:
    assert counts(*given) == kept


def test_other_ratios() -> None:
    assert counts(3, 8, wrong=1, right=1) == (3, 3)
    assert counts(3, 8, wrong=1, right=0) == (3, 0)


def test_half_of_the_rollouts_are_enough_and_what_is_unknown_is_left_out() -> None:
    tasks = [Task(key=key, prompt="p") for key in "abcd"]
    chosen = ByOutcome(reward=Match(), wrong=1, right=1).choose(tasks, [0.5, 0.25, None, 0.0])
    assert [task.key for task in chosen.tasks] in (["a", "b"], ["a", "d"])
    assert chosen.summary == (
        "1 of 2 tasks that are answered incorrectly, and 1 of 1 that are answered correctly; 1 could not be scored and "
        "are left out"
    )


def test_which_ones_follows_the_seed() -> None:
    tasks = [Task(key=f"t{i}", prompt="p") for i in range(12)]
    drawn = {
        tuple(t.key for t in ByOutcome(reward=Match(), seed=seed).choose(tasks, [0.0] * 10 + [1.0] * 2).tasks)
        for seed in range(8)
    }
    assert len(drawn) > 1
