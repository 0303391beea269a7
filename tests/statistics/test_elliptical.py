"""Leverage and coresets, by hand and against the inverse."""

import numpy as np
import pytest

from posttrain.statistics.elliptical import coreset, leverage, random_calls


def test_leverage_by_hand() -> None:
    """1 and -1 around 0: C = ridge + 2; with ridge 2, 1 / 4 each. Without its own: C = 3, 1 / 3."""
    assert leverage([[1.0], [-1.0]], 2.0) == pytest.approx([0.25, 0.25])
    assert leverage([[1.0], [-1.0]], 2.0, leave_one_out=True) == pytest.approx([1 / 3, 1 / 3])
    assert leverage([[3.0, 1.0]] * 4, 0.01).tolist() == [0.0] * 4, "equal rollouts are not new"
    assert leverage([[3.0, 1.0]], 0.01).tolist() == [0.0] and not len(leverage([], 0.01))
    assert leverage([[np.nan], [1.0]], 0.01).tolist() == [0.0, 0.0]


def test_leverage_is_that_of_the_inverse_and_below_one() -> None:
    x = np.random.default_rng(0).normal(size=(8, 5))
    own = x - x.mean(0)
    inverse = np.linalg.inv(0.1 * np.eye(5) + own.T @ own)
    found = leverage(x, 0.1)
    assert found == pytest.approx(np.einsum("nd,de,ne->n", own, inverse, own)) and (found < 1.0).all()
    without = [row @ np.linalg.inv(0.1 * np.eye(5) + own.T @ own - np.outer(row, row)) @ row for row in own]
    assert leverage(x, 0.1, leave_one_out=True) == pytest.approx(without)


def test_a_near_duplicate_has_less() -> None:
    """Two nearly equal rollouts, one that differs: the pair shares what one has alone."""
    one, other, third = leverage([[1.0, 0.0], [1.0, 0.001], [-2.0, 0.0]], 0.01)
    assert one == pytest.approx(other, rel=0.01) and third > 1.5 * one


def test_the_incremental_inverse_is_the_direct_one() -> None:
    """Each choice is the largest h' L h with the inverse of I ridge + the sum over those chosen."""
    x = np.random.default_rng(1).normal(size=(12, 6))
    own, order = x - x.mean(0), coreset(x, 6, ridge=0.5, first=3)
    for count in range(1, 6):
        chosen = own[order[:count]]
        inverse = np.linalg.inv(0.5 * np.eye(6) + chosen.T @ chosen)
        assert order[count] == int(np.einsum("nd,de,ne->n", own, inverse, own).argmax())


def test_distinct_clusters_come_first() -> None:
    centers = np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0], [-9.0, -9.0, -9.0]])
    x = np.repeat(centers, 5, axis=0) + np.random.default_rng(2).normal(0, 0.01, (20, 3))
    assert sorted(i // 5 for i in coreset(x, 4, first=7)) == [0, 1, 2, 3]


def test_every_place_once() -> None:
    assert sorted(coreset(np.zeros((5, 2)), 9, first=2)) == [0, 1, 2, 3, 4]
    assert coreset(np.ones((3, 1)), 2, first=1) == [1, 0]


def test_calls_in_random_order() -> None:
    assert random_calls(1, 9) == 5.0 and random_calls(9, 9) == 1.0
