"""GRPO-S by hand: both weights, what is left out, units of the gaps, the sum of a group, and where it is GRPO."""

import math
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.dynamic_scaling import DynamicScaling
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.types import Batch, Group, Score
from tests.builders import batch

RAW = DynamicScaling(standardise=False, tau=4.0)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def compared(rewards: list[list[float]], alike: list[list[float]], gaps: list[list[float]], *domains: str) -> Batch:
    """Rollouts with these parts; groups of these domains."""
    plain = batch(rewards)
    groups = []
    for g, group in enumerate(plain.groups):
        made = []
        for t, a, r in zip(group, alike[g], gaps[g], strict=True):
            assert t.score is not None
            parts = {"similarity": Score(value=a, status="ok"), "gap": Score(value=r, status="ok")}
            task = replace(t.task, domain=domains[g] if domains else "")
            made.append(replace(t, task=task, score=replace(t.score, parts=parts)))
        groups.append(Group(key=group.key, trajectories=tuple(made)))
    return replace(plain, groups=tuple(groups))


def weights(advantage: DynamicScaling, given: Batch) -> list[float]:
    """The scaled advantages in units of GRPO's."""
    plain = GroupMean()({}, given)[1].advantages
    scaled = advantage({}, given)[1].advantages
    return [float(a[0] / b[0]) for a, b in zip(scaled, plain, strict=True)]


def test_the_weight_of_data_by_hand() -> None:
    given = compared([[1, 0]], [[0.9, 0.3]], [[-1, -1]])
    middle = sigmoid(0.4)
    assert weights(RAW, given) == pytest.approx([sigmoid(0.1) / middle, sigmoid(0.7) / middle], rel=1e-6)


def test_the_weight_of_the_model_by_hand() -> None:
    """Mean -2.05; only -6 is further from it than 2; sigmoid(-.7333) / sigmoid(-2.05) = 2.84."""
    given = compared([[1, 0, 1, 0]], [[0.5] * 4], [[-1, -0.5, -6, -0.7]])
    expected = sigmoid(-2.2 / 3) / sigmoid(-2.05)
    assert expected == pytest.approx(2.84, abs=0.005)
    assert weights(RAW, given) == pytest.approx([expected] * 4, rel=1e-6)
    assert RAW({}, given)[1].metrics["gaps_kept"] == 0.75
    assert weights(replace(RAW, model=False), given) == pytest.approx([1.0] * 4)
    all_out = replace(RAW, tau=1e-9)
    assert weights(all_out, given) == pytest.approx([1.0] * 4), "where all are left out it is 1"


def test_gaps_are_standardised_within_their_domain() -> None:
    """The same outlier in units a thousand times as large, in another domain: the same weight."""
    small = [-1.0, -0.5, -6.0, -0.7]
    gaps = [small, [1000 * gap for gap in small]]
    given = compared([[1, 0, 1, 0]] * 2, [[0.5] * 4] * 2, gaps, "crime", "lie")
    found = weights(DynamicScaling(tau=1.0), given)
    z = (np.array(small) - np.mean(small)) / np.std(small, ddof=1)
    assert found == pytest.approx([sigmoid(z[[0, 1, 3]].mean()) / 0.5] * 8, rel=1e-6)
    together = compared([[1, 0, 1, 0]] * 2, [[0.5] * 4] * 2, gaps)
    assert weights(DynamicScaling(tau=1.0), together)[:4] == pytest.approx([1.0] * 4), "small beside the other's"


def test_equal_gaps_and_similarities_are_grpo() -> None:
    given = compared([[1, 0, 0], [1, 1, 0]], [[0.4] * 3] * 2, [[-2.0] * 3] * 2)
    for advantage in (DynamicScaling(), RAW, DynamicScaling(per="prompt")):
        assert weights(advantage, given) == pytest.approx([1.0] * 6)
    credit = DynamicScaling()({}, given)[1]
    assert credit.metrics["group_sum"] == pytest.approx(0, abs=1e-6) and credit.metrics["alpha"] == pytest.approx(1)


def test_per_prompt_the_advantages_of_a_group_sum_to_zero_and_per_response_they_do_not() -> None:
    given = compared([[1, 0, 0, 1]], [[0.1, 0.9, 0.8, 0.2]], [[0.0] * 4])
    one, other = RAW({}, given)[1], replace(RAW, per="prompt")({}, given)[1]
    assert other.metrics["group_sum"] == pytest.approx(0, abs=1e-6)
    assert one.metrics["group_sum"] == pytest.approx(abs(sum(float(a[0]) for a in one.advantages))) and (
        one.metrics["group_sum"] > 0.1
    )
    assert len({float(a[0]) for a in other.advantages}) == 2, "one weight for the prompt"
    assert all(np.sign(a[0]) == np.sign(b[0]) for a, b in zip(one.advantages, other.advantages, strict=True))


def test_rollouts_without_parts_keep_their_credit() -> None:
    plain = batch([[1, 0, 1]])
    assert weights(DynamicScaling(), plain) == pytest.approx([1.0] * 3)
    assert DynamicScaling()({}, plain)[1].metrics["gaps_kept"] == 1.0


def test_extreme_gaps_are_finite() -> None:
    given = compared([[1, 0, 0]], [[1.0, 0.0, 0.5]], [[-1e6, 1e6, 0.0]])
    for advantage in (RAW, DynamicScaling()):
        assert np.isfinite(np.concatenate(advantage({}, given)[1].advantages)).all()
