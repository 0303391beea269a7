import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.components.filters.balanced import Balanced
from tests.builders import group


def kept_places(rewards: list[float], n: int = 4, threshold: float = 0.7) -> list[int]:
    _, [kept], dropped = Balanced(n=n, threshold=threshold)({}, [group(rewards)])
    places = [attempt.sample for attempt in kept]
    assert sorted(places + [t.sample for d in dropped for t in d.group]) == list(range(len(rewards)))
    return places


@pytest.mark.parametrize(
    ("rewards", "n", "places"),
    [
        ([0, 0, 0, 1, 1, 0, 1, 1], 4, [0, 1, 3, 4]),  # two of each, the first ones
        ([1, 1, 1, 1, 0, 0, 1, 0], 5, [0, 1, 4, 5, 7]),  # the odd one is wrong
        ([0, 0, 0, 0, 0, 0, 1, 0], 4, [0, 1, 2, 6]),  # one right: more wrong ones
        ([1, 1, 0, 1, 1, 1, 1, 1], 4, [0, 1, 2, 3]),  # one wrong: more right ones
        ([0] * 8, 4, [0, 1, 2, 3]),  # not dropped
        ([1] * 8, 4, [0, 1, 2, 3]),
        ([0, 1, 1], 1, [0]),
    ],
)
def test_first_come_half_and_half_and_filled_up(rewards: list[float], n: int, places: list[int]) -> None:
    assert kept_places(rewards, n) == places


def test_right_is_above_the_threshold() -> None:
    assert kept_places([0.5, 0.5, 0.6, 0.7], n=2, threshold=0.5) == [0, 2]


def test_the_pool_is_remembered_where_something_was_left_out() -> None:
    small, large = group([1, 0]), group([1, 0, 0, 0.25])
    _, (whole, chosen), [dropped] = Balanced(n=2)({}, [small, large])
    assert whole is small and whole.pool == ()
    assert chosen.pool == (1, 0, 0, 0.25)
    assert dropped.reason == "2 of 4 rollouts are kept"
    _, [again], _ = Balanced(n=1)({}, [chosen])
    assert again.pool == (1, 0, 0, 0.25), "the pool is what was sampled, not what was chosen before"


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=20), st.integers(1, 8))
def test_as_even_as_can_be(rewards: list[float], n: int) -> None:
    places = kept_places(rewards, n)
    assert len(places) == min(n, len(rewards)) and places == sorted(places)
    if len(rewards) > n:
        right = sum(rewards[i] for i in places)
        total = sum(rewards)
        wanted = n // 2 if min(total, n) >= n // 2 and len(rewards) - total >= n - n // 2 else None
        assert right == (wanted if wanted is not None else total if total < n // 2 else n - (len(rewards) - total))
