import random
from itertools import product

import pytest

from posttrain.statistics.interquartile import interquartile_mean, stratified_interquartile_mean


@pytest.mark.parametrize(
    ("scores", "mean"),
    # A quarter, rounded down, goes at either end: none of 3, one of 4 to 7, two of 8.
    [
        ([1.0, 2.0, 9.0], 4.0),
        ([9.0, 1.0, 3.0, 2.0], 2.5),
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),
        ([5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 99.0, 99.0], 6.5),
        ([[0.0, 10.0], [1.0, 11.0]], 5.5),
    ],
)
def test_by_hand(scores: list[float], mean: float) -> None:
    assert interquartile_mean(scores) == pytest.approx(mean)


def middle_of(scores: list[float]) -> float:
    """An independent definition: drop the smallest and the largest, one pair for every four scores."""
    left = list(scores)
    for _ in range(len(scores) // 4):
        left.remove(min(left))
        left.remove(max(left))
    return sum(left) / len(left)


def test_the_interval_of_three_runs_counts_every_resample() -> None:
    scores = [0.2, 0.5, 0.9]
    every = sorted(middle_of([scores[i] for i in drawn]) for drawn in product(range(3), repeat=3))
    got = stratified_interquartile_mean(scores, resamples=40_000)
    # 27 resamples: 2.5 % lies within the first, which is three times 0.2 (a share of 1/27), and so above.
    assert got.interval == pytest.approx((every[0], every[-1]))
    assert got.standard_error == pytest.approx((sum((x - sum(every) / 27) ** 2 for x in every) / 27) ** 0.5, rel=0.02)


def test_runs_are_drawn_within_each_task() -> None:
    # Tasks far apart: drawing across them would move the mean by tens.
    scores_RK = [[0.0, 100.0], [1.0, 101.0], [2.0, 102.0], [3.0, 103.0]]
    rng = random.Random(5)
    slow = sorted(
        middle_of([rng.choice([row[task] for row in scores_RK]) for task in (0, 1) for _ in range(4)])
        for _ in range(20_000)
    )
    got = stratified_interquartile_mean(scores_RK, resamples=20_000)
    assert got.value == pytest.approx(middle_of([x for row in scores_RK for x in row]))
    assert got.interval == pytest.approx((slow[500], slow[-501]), abs=0.3)
    assert got.interval.high - got.interval.low < 4


def test_no_score_is_refused() -> None:
    with pytest.raises(ValueError, match="0 scores"):
        interquartile_mean([])
