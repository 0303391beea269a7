"""Rewards in units of the running standard deviation of discounted returns."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.advantages.running_scale import RunningScale
from tests.builders import batch, trajectory


def test_two_rollouts_by_hand() -> None:
    """Returns 3 and 1 have the standard deviation 1; with 5 and 3 in the next step that of 1, 3, 3, 5 is sqrt 2."""
    scaled = RunningScale(advantage=FixedBaseline(baseline=0.0))
    state, credit = scaled(scaled.start(), batch([[3.0, 1.0]]))
    assert [float(a_T[-1]) for a_T in credit.advantages] == pytest.approx([3, 1], abs=1e-6)
    assert credit.metrics["reward_scale"] == pytest.approx(1.0, abs=1e-6)
    state, credit = scaled(state, batch([[5.0, 3.0]]))
    assert [float(a_T[-1]) for a_T in credit.advantages] == pytest.approx([5 / 2**0.5, 3 / 2**0.5], abs=1e-6)
    assert state["count"] == 4 and state["mean"] == pytest.approx(3.0)


def test_returns_are_discounted_along_the_turns() -> None:
    one = trajectory(1)
    three = replace(one, segments=(one.segments[0], *(replace(one.segments[1], turn=turn) for turn in range(3))))
    found = RunningScale(advantage=FixedBaseline(), gamma=0.5)._returns(three, np.array([4.0, 0.0, 1.0]))
    assert found.tolist() == [4.0, 2.0, 2.0]  # 4; 0.5 * 4 + 0; 0.5 * 2 + 1


def test_equal_returns_are_clipped() -> None:
    """Without any variance the scale is 1e-4, and 2 / 1e-4 is beyond the bound."""
    scaled = RunningScale(advantage=FixedBaseline(baseline=0.0), clip=7.0)
    _, credit = scaled(scaled.start(), batch([[2.0, 2.0]]))
    assert {float(a_T[-1]) for a_T in credit.advantages} == {7.0}
