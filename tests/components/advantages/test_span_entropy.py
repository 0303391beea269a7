"""The bonus is for the thoughts alone, bounded by the advantage, and a number without gradient."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.span_entropy import SpanEntropy
from posttrain.components.rollouts import Spans
from posttrain.signals import OLD_ENTROPY
from posttrain.types import Batch
from tests.builders import batch

PLAIN = GroupMean(scale="none")


def thinking(rewards: list[float], entropies: list[list[float]], ranges: list[tuple[int, int] | None]) -> Batch:
    made = batch([rewards], length=4, signals={OLD_ENTROPY: entropies})
    trajectories = tuple(
        t if own is None else replace(t, facts=(Spans(ranges={"think": (own,), "call": ((3, 4),)}),))
        for t, own in zip(made.trajectories, ranges, strict=True)
    )
    return replace(made, groups=(replace(made.groups[0], trajectories=trajectories),))


def advantages(these: Batch, **settings: object) -> list[list[float]]:
    _, credit = SpanEntropy(advantage=PLAIN, **settings)({}, these)  # type: ignore[arg-type]
    return [a_T.tolist() for a_T in credit.advantages]


def test_hand_worked() -> None:
    """A = 0.5 and -0.5, H = 0.5 and 2: bonuses min(0.2, 0.25) = 0.2 and min(0.8, 0.25) = 0.25."""
    these = thinking([1.0, 0.0], [[9, 0.25, 0.75, 9], [9, 2, 2, 9]], [(1, 3), (1, 3)])
    assert advantages(these)[0] == pytest.approx([0.5, 0.7, 0.7, 0.5])
    assert advantages(these)[1] == pytest.approx([-0.5, -0.25, -0.25, -0.5])
    assert advantages(these, where="rollout")[0] == pytest.approx([0.7] * 4)
    _, credit = SpanEntropy(advantage=PLAIN)({}, these)
    assert credit.metrics["entropy/think"] == pytest.approx(1.25) and credit.metrics["entropy/call"] == 9.0
    assert credit.metrics["entropy_bonus"] == pytest.approx((0.4 + 0.5) / 8) and credit.metrics["parts/think"] == 1.0


@pytest.mark.parametrize("kappa", [1.01, 2.0, 10.0])
def test_no_sign_changes_and_no_bonus_without_an_advantage(kappa: float) -> None:
    for rewards in ([1.0, 0.0, 0.3], [1.0, 1.0, 1.0]):
        these = thinking(rewards, [[50.0] * 4] * 3, [(0, 4)] * 3)
        _, plain = PLAIN({}, these)
        found = advantages(these, kappa=kappa, weight=100.0)
        for own, before in zip(found, plain.advantages, strict=True):
            assert np.sign(own).tolist() == np.sign(before).tolist()


def test_weight_0_and_a_large_kappa_change_nothing() -> None:
    these = thinking([1.0, 0.0], [[1.0] * 4] * 2, [(1, 3), (0, 4)])
    _, plain = PLAIN({}, these)
    before = [a_T.tolist() for a_T in plain.advantages]
    assert advantages(these, weight=0.0) == before
    assert advantages(these, kappa=1e12)[0] == pytest.approx(before[0], abs=1e-9)


def test_kappa_of_at_most_1_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than 1"):
        SpanEntropy(advantage=PLAIN, kappa=1.0)


def test_without_thoughts_there_is_no_bonus() -> None:
    these = thinking([1.0, 0.0], [[1.0] * 4] * 2, [None, (1, 3)])
    found = advantages(these)
    assert found[0] == [0.5] * 4 and found[1] != [-0.5] * 4


def test_a_single_rollout_has_no_advantage() -> None:
    assert advantages(thinking([1.0], [[1.0] * 4], [(1, 3)])) == [[0.0] * 4]
