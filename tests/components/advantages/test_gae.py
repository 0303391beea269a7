from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.gae import GAE
from posttrain.signals import OLD_VALUE
from posttrain.types import Batch, Credit, Group, Segment
from tests.builders import batch

REWARDS, VALUES = [0.0, 0.0, 1.0], [0.5, 0.6, 0.7]


def one(rewards: list[float] = REWARDS, values: list[float] = VALUES) -> Batch:
    return batch([[1]], token_rewards=[rewards], signals={OLD_VALUE: [values]})


def credit_of(advantage: GAE, given: Batch) -> Credit:
    return advantage({}, given)[1]


def test_worked_example() -> None:
    # delta = 0.9 * 0.6 - 0.5, 0.9 * 0.7 - 0.6, 1 - 0.7; A_1 = 0.03 + 0.45 * 0.3; A_0 = 0.04 + 0.45 * 0.165
    credit = credit_of(GAE(gamma=0.9, lam=0.5, whiten=False), one())
    assert credit.advantages[0].tolist() == pytest.approx([0.11425, 0.165, 0.3], abs=1e-6)
    assert credit.value_targets[0].tolist() == pytest.approx([0.61425, 0.765, 1.0], abs=1e-6)


def test_lam_zero_is_one_step_and_lam_one_is_return_minus_value() -> None:
    temporal = credit_of(GAE(gamma=1.0, lam=0.0, whiten=False), one()).advantages[0]
    assert temporal.tolist() == pytest.approx([0.1, 0.1, 0.3], abs=1e-6)
    full = credit_of(GAE(gamma=1.0, lam=1.0, whiten=False), one())
    assert full.advantages[0].tolist() == pytest.approx([0.5, 0.4, 0.3], abs=1e-6)
    assert full.value_targets[0].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)


def test_a_perfect_critic_leaves_no_advantage() -> None:
    credit = credit_of(GAE(gamma=0.5, lam=0.7, whiten=False), one([0, 0, 4], [1, 2, 4]))
    assert credit.advantages[0].tolist() == [0, 0, 0]


def test_whitening_is_over_the_batch_and_leaves_the_targets() -> None:
    given = batch([[1, 0]], token_rewards=[[0, 1], [0, 0, 0]], signals={OLD_VALUE: [[0.2, 0.4], [0.1, 0.2, 0.3]]})
    plain, white = credit_of(GAE(whiten=False), given), credit_of(GAE(whiten=True), given)
    flat, raw = np.concatenate(white.advantages), np.concatenate(plain.advantages)
    assert flat == pytest.approx((raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8), abs=1e-5)
    for left, right in zip(plain.value_targets, white.value_targets, strict=True):
        assert np.array_equal(left, right)


def test_turns_follow_one_another_whatever_the_environment_wrote_between() -> None:
    given = one()
    attempt = given.trajectories[0]
    first, second = (replace(attempt.segments[1], token_ids=np.arange(n), logp=np.zeros(n)) for n in (1, 2))
    tool = Segment(actor="environment", token_ids=np.arange(50), turn=1)
    attempt = replace(attempt, segments=(attempt.segments[0], first, tool, replace(second, turn=1)))
    turns = replace(given, groups=(Group(trajectories=(attempt,)),))
    assert np.array_equal(credit_of(GAE(), turns).advantages[0], credit_of(GAE(), given).advantages[0])


def test_a_rollout_cut_at_the_limit_has_no_value_after_it() -> None:
    given = one()
    cut = replace(given, groups=(Group(trajectories=(replace(given.trajectories[0], stop_reason="length"),)),))
    assert np.array_equal(credit_of(GAE(), cut).value_targets[0], credit_of(GAE(), given).value_targets[0])
