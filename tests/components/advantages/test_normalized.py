"""Scores in units of their running std, by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.normalized import Normalized
from posttrain.signals import OLD_VALUE
from tests.builders import batch

NORMALIZED = Normalized(advantage=GAE(whiten=False, lam=1.0))


def with_values(given, level=0.0):  # type: ignore[no-untyped-def]
    return replace(given, signals={OLD_VALUE: tuple(np.full_like(r, level) for r in given.token_rewards)})


def test_moments_hold_this_step_before_it_is_normalised() -> None:
    given = with_values(batch([[1.0], [3.0], [5.0]]))
    state, credit = NORMALIZED(NORMALIZED.start(), given)
    # mean 3, unbiased std sqrt((4 + 0 + 4) / 2) = 2; lambda 1 and values 0: the return at every token
    for advantage, expected in zip(credit.advantages, (-1.0, 0.0, 1.0), strict=True):
        assert advantage.tolist() == pytest.approx([expected] * 2, abs=1e-6)
    assert (state["count"], state["mean"], state["squares"]) == (3, 3.0, 8.0)
    state, credit = NORMALIZED(json.loads(json.dumps(state)), with_values(batch([[3.0], [9.0]])))
    # of 1, 3, 5, 3, 9: mean 4.2, squares 10.24 + 1.44 + 0.64 + 1.44 + 23.04 = 36.8, std sqrt(9.2)
    assert (state["mean"], state["squares"]) == (pytest.approx(4.2), pytest.approx(36.8))
    assert credit.advantages[1][0] == pytest.approx(4.8 / 9.2**0.5, abs=1e-6)
    assert credit.metrics["score/mean"] == pytest.approx(4.2)


def test_penalties_in_the_reward_keep_their_size() -> None:
    given = with_values(batch([[1.0], [3.0]], token_rewards=[[-0.25, 1.0], [0.0, 2.5]]))
    _, credit = NORMALIZED(NORMALIZED.start(), given)
    half = 0.5**0.5  # scores 1 and 3 are -1 and 1 from the mean, in units of sqrt(2)
    assert credit.advantages[0].tolist() == pytest.approx([-0.25 - half, -half], abs=1e-6)
    assert credit.advantages[1].tolist() == pytest.approx([half - 0.5, half - 0.5], abs=1e-6)


def test_constant_and_single_scores_are_nothing() -> None:
    for given in (with_values(batch([[2.0], [2.0]])), with_values(batch([[7.0]]))):
        _, credit = NORMALIZED(NORMALIZED.start(), given)
        assert not np.concatenate(credit.advantages).any()


def test_targets_and_needs_are_those_of_what_is_inside() -> None:
    assert NORMALIZED.needs == {OLD_VALUE} and Normalized(advantage=GroupMean()).needs == frozenset()
    _, credit = NORMALIZED(NORMALIZED.start(), with_values(batch([[1.0], [3.0]]), 0.5))
    assert credit.value_targets[1].tolist() == pytest.approx([0.5**0.5] * 2, abs=1e-6)
