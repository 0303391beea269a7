from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.components.curricula.uniform import Uniform
from posttrain.types import Task


def draw(size: int, counts: list[int], seed: int = 0) -> list[str]:
    """Keys in the order in which they were handed out, over steps of the given sizes."""
    pool = [Task(key=str(i), prompt="") for i in range(size)]
    state, keys = Uniform().start(), []
    for step, count in enumerate(counts):
        state, chosen = Uniform().select(state, pool, count, seed=seed, step=step)
        keys += [pick.task.key for pick in chosen]
    assert state == {"position": sum(counts)}
    return keys


@given(st.integers(1, 9), st.lists(st.integers(0, 12), max_size=6), st.integers(0, 2**40))
def test_every_epoch_holds_every_task_once(size: int, counts: list[int], seed: int) -> None:
    keys = draw(size, counts, seed)
    for begin in range(0, len(keys) - size + 1, size):
        assert sorted(keys[begin : begin + size], key=int) == [str(i) for i in range(size)]
    assert not keys or max(Counter(keys).values()) - min(Counter(keys)[str(i)] for i in range(size)) <= 1


def test_order_does_not_depend_on_the_size_of_steps() -> None:
    assert draw(7, [3, 3, 3, 3, 3]) == draw(7, [15]) == draw(7, [1] * 15)


def test_epochs_and_seeds_differ() -> None:
    keys = draw(20, [40])
    assert keys[:20] != keys[20:]
    assert keys != draw(20, [40], seed=1)


@pytest.mark.parametrize("count", [7, 10])
def test_a_small_pool_comes_round_again(count: int) -> None:
    assert Counter(draw(3, [count])).total() == count
