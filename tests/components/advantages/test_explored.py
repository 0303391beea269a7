"""The bonus for differing states, by hand, and the groups that have none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.advantages.explored import Explored
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.signals import Signal
from posttrain.types import Batch, Credit
from tests.builders import batch

PLAIN = GroupMean(center="none", scale="none")
STATES = Signal("embedding", of="reference")


def credit(scores: list[list[float]], states: list[list[list[float]]], **settings: Any) -> Credit:
    """Rollouts of two tokens with a state of one number each."""
    given: Batch = batch(scores)
    found = tuple(np.array(own, np.float32) for own in states)
    explored = Explored(**{"advantage": PLAIN, "beta": 1.0, "ridge": 2.0, **settings})
    return explored(explored.start(), replace(given, signals={STATES: found}))[1]


UP, DOWN = [[0.5], [1.5]], [[-2.0], [0.0]]
"""Means 1 and -1: a leverage of 1 / 4 each with a ridge of 2."""


def firsts(found: Credit) -> list[float]:
    return [float(own[0]) for own in found.advantages]


def test_the_bonus_is_added_to_the_reward() -> None:
    found = credit([[1.0, 0.0]], [UP, DOWN])
    assert firsts(found) == pytest.approx([1.25, 0.25])
    assert found.metrics["exploration_bonus"] == pytest.approx(0.25) and found.metrics["explored"] == 1.0
    assert firsts(credit([[1.0, 0.0]], [UP, DOWN], beta=0.0)) == [1.0, 0.0]
    assert firsts(credit([[1.0, 0.0]], [UP, DOWN], leave_one_out=True)) == pytest.approx([4 / 3, 1 / 3])


def test_no_bonus_where_all_are_incorrect() -> None:
    assert firsts(credit([[0.0, 0.0]], [UP, DOWN])) == [0.0, 0.0]
    assert firsts(credit([[0.0, 0.0]], [UP, DOWN], only="all")) == pytest.approx([0.25, 0.25])
    assert firsts(credit([[1.0, 0.0]], [UP, DOWN], only="correct")) == pytest.approx([1.25, 0.0])


def test_groups_are_compared_within() -> None:
    found = credit([[1.0, 0.0], [1.0, 1.0]], [UP, DOWN, UP, UP])
    assert firsts(found) == pytest.approx([1.25, 0.25, 1.0, 1.0]), "equal rollouts have nothing new"


def test_a_group_that_is_all_correct_is_moved_by_the_bonus_alone() -> None:
    """States 1, 1, -2 less their mean 0: the third differs, and the estimator divides by the std."""
    found = credit([[1.0, 1.0, 1.0]], [UP, UP, [[-2.0], [-2.0]]], advantage=GroupMean(), beta=0.01)
    one, other, third = firsts(found)
    assert one == pytest.approx(other) and third > 1.0 > 0.0 > one
    assert firsts(credit([[1.0, 1.0, 1.0]], [UP, UP, UP], advantage=GroupMean())) == [0.0] * 3


def test_scales() -> None:
    states = [UP, UP, [[-2.0], [-2.0]]]
    bonus = np.array(firsts(credit([[1.0, 1.0, 1.0]], states))) - 1.0
    by_std = np.array(firsts(credit([[1.0, 1.0, 1.0]], states, scale="std"))) - 1.0
    z = np.array(firsts(credit([[1.0, 1.0, 1.0]], states, scale="z"))) - 1.0
    assert by_std == pytest.approx(bonus / bonus.std(), rel=1e-5)
    assert z == pytest.approx((bonus - bonus.mean()) / bonus.std(), rel=1e-4)
