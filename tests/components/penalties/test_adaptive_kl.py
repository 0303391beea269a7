"""The weight of a divergence, steered; by hand."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.penalties.adaptive_kl import AdaptiveKL
from posttrain.signals import Signal, logp_of
from posttrain.types import Batch
from tests.builders import batch, trajectory

DIVERGENCE = Signal("reverse_kl", of="reference", old=True)


def diverged(*rows: list[float]) -> Batch:
    given = batch([[0.0] * len(rows)], token_rewards=[[0.0] * len(row) for row in rows])
    return replace(given, signals={DIVERGENCE: tuple(np.asarray(row, np.float32) for row in rows)})


def test_the_weight_moves_with_the_error_and_the_number_of_rollouts() -> None:
    penalty = AdaptiveKL(coefficient=0.4, target=6.0, horizon=100.0)
    state = penalty.start()
    assert state == {"coefficient": 0.4}
    # sums 6 and 6.6: mean 6.3, error 0.05, two rollouts of a horizon of 100
    state = penalty.observe(state, diverged([2.0, 4.0], [6.0, 0.5, 0.1]))
    assert state["coefficient"] == pytest.approx(0.4 * (1 + 0.05 * 2 / 100))
    assert penalty.observe({"coefficient": 1.0}, diverged([60.0]))["coefficient"] == pytest.approx(1.002), "at most 0.2"
    assert penalty.observe({"coefficient": 1.0}, diverged([0.0]))["coefficient"] == pytest.approx(0.998)
    assert penalty.at({"coefficient": 0.7}).coefficient == 0.7


def test_it_takes_the_exact_divergence_from_each_token() -> None:
    attempt = trajectory(logp=[-1.0, -2.0])
    taken = AdaptiveKL(coefficient=0.5).in_reward(attempt, {DIVERGENCE: np.array([0.2, 1.0], np.float32)})
    assert taken.tolist() == pytest.approx([-0.1, -0.5])
    sampled = AdaptiveKL(coefficient=0.5, form="k1", role="teacher")
    assert sampled.needs == {logp_of("teacher")}
    taken = sampled.in_reward(attempt, {logp_of("teacher"): np.array([-1.4, -1.0], np.float32)})
    assert taken.tolist() == pytest.approx([-0.2, 0.5])
    assert AdaptiveKL().needs == {DIVERGENCE}
