from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.statistics.pass_at_k import mean_pass_at_k, pass_at_k


def test_by_hand() -> None:
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)  # 3 of the 6 pairs hold the right one
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(5, 0, 3) == 0.0
    assert pass_at_k(5, 3, 3) == 1.0


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_equals_the_share_of_subsets_with_a_right_answer(case: tuple[int, int, int]) -> None:
    samples, correct, k = case
    subsets = list(combinations(range(samples), k))
    share = sum(any(i < correct for i in subset) for subset in subsets) / len(subsets)
    assert pass_at_k(samples, correct, k) == pytest.approx(share)


def test_mean_over_tasks_with_an_interval() -> None:
    got = mean_pass_at_k([4] * 50, [0] * 25 + [4] * 25, 2)
    assert got.value == pytest.approx(0.5)
    assert got.interval == pytest.approx((0.36, 0.64), abs=0.021)
    assert got == mean_pass_at_k([4] * 50, [0] * 25 + [4] * 25, 2)


@pytest.mark.parametrize("case", [(4, 1, 5), (4, 5, 1), (4, 1, 0)])
def test_impossible_counts_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(*case)
