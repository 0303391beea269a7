import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.statistics.paired import mcnemar, minimum_detectable_effect, newcombe, paired_difference


def outcomes(both: int, lost: int, gained: int, neither: int) -> tuple[list[bool], list[bool]]:
    before = [True] * both + [True] * lost + [False] * gained + [False] * neither
    after = [True] * both + [False] * lost + [True] * gained + [False] * neither
    return before, after


@pytest.mark.parametrize(
    ("gained", "lost", "p_value"),
    # By hand: 2 * (1 + 10) / 2^10; 2 * 1 / 2^5; no change at all; a tie.
    [(9, 1, 22 / 1024), (0, 5, 2 / 32), (0, 0, 1.0), (4, 4, 1.0)],
)
def test_mcnemar_by_hand(gained: int, lost: int, p_value: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p_value)


def test_mcnemar_of_many_tasks_does_not_overflow() -> None:
    assert 0.0 < mcnemar(1300, 1100) < 1e-4


def test_newcombe_gives_the_published_interval() -> None:
    # Newcombe 1998, Statistics in Medicine 17:2635-2650, table II: 36, 12, 2, 0 by method 10.
    got = paired_difference(*outcomes(both=36, lost=2, gained=12, neither=0))
    assert got.value == pytest.approx(0.2)
    assert newcombe(36, 2, 12, 50, 0.95) == pytest.approx((0.0569, 0.3404), abs=5e-5)
    # 12 of 14 by Clopper and Pearson: [0.57187, 0.98221]; (2 * 0.57187 - 1) * 14 / 50 lies further out.
    assert got.interval == pytest.approx((0.04025, 0.3404), abs=5e-5)
    assert (got.gained, got.lost, got.tasks) == (12, 2, 50)


@pytest.mark.parametrize("cells", [(0, 0, 20, 0), (0, 20, 0, 0), (20, 0, 0, 0), (0, 0, 0, 20), (10, 0, 0, 10)])
def test_extreme_tables_give_finite_intervals_that_hold_the_difference(cells: tuple[int, int, int, int]) -> None:
    got = paired_difference(*outcomes(*cells))
    assert -1 <= got.interval.low <= got.value <= got.interval.high <= 1
    assert got.interval.high > got.interval.low


def test_the_interval_and_the_exact_test_agree() -> None:
    # 9 gained and 2 lost of 50: p = 2 * (1 + 11 + 55) / 2^11 = 0.065, and Newcombe's interval alone excludes 0.
    got = paired_difference(*outcomes(both=20, lost=2, gained=9, neither=19))
    assert got.p_value == pytest.approx(134 / 2048)
    assert newcombe(20, 2, 9, 50, 0.95).low > 0 > got.interval.low
    for tasks in (6, 20, 60):
        for gained in range(min(tasks, 30) + 1):
            for lost in range(min(tasks - gained, 12) + 1):
                both = (tasks - gained - lost) // 3
                got = paired_difference(*outcomes(both, lost, gained, tasks - gained - lost - both))
                assert (got.p_value < 0.05) == (not got.interval.low <= 0 <= got.interval.high), (gained, lost)


@given(*[st.integers(0, 60)] * 4)
def test_swapping_before_and_after_turns_the_sign(both: int, lost: int, gained: int, neither: int) -> None:
    if both + lost + gained + neither == 0:
        return
    before, after = outcomes(both, lost, gained, neither)
    forth, back = paired_difference(before, after), paired_difference(after, before)
    assert (back.value, back.p_value) == pytest.approx((-forth.value, forth.p_value))
    assert back.interval == pytest.approx((-forth.interval.high, -forth.interval.low), abs=1e-12)


def test_the_interval_covers_the_truth() -> None:
    generator = np.random.default_rng(1)
    truth = [0.35, 0.05, 0.25, 0.35]
    tables = generator.multinomial(100, truth, size=600)
    inside = 0
    for cells in tables:
        low, high = paired_difference(*outcomes(*map(int, cells))).interval
        inside += low <= 0.2 <= high
    assert 0.93 <= inside / 600 <= 0.99


@pytest.mark.parametrize(
    ("tasks", "discordant", "points"),
    [(30, 0.1, 14.4), (30, 0.3, 24.9), (100, 0.2, 12.1), (500, 0.2, 5.6), (1319, 0.1, 2.4)],
)
def test_minimum_detectable_effect_is_the_known_table(tasks: int, discordant: float, points: float) -> None:
    assert 100 * minimum_detectable_effect(discordant, tasks) == pytest.approx(points, abs=0.06)


def test_minimum_detectable_effect_solves_its_equation() -> None:
    delta = minimum_detectable_effect(0.3, 200)
    assert delta == pytest.approx((1.959964 + 0.841621) * math.sqrt((0.3 - delta**2) / 200), rel=1e-6)


def test_tasks_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="1 tasks before and 2 after"):
        paired_difference([True], [True, False])
    with pytest.raises(ValueError, match="at least one"):
        paired_difference([], [])
