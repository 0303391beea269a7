import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.components.advantages.group_mean import GroupMean
from tests.builders import batch

REWARDS = st.lists(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=5), min_size=1, max_size=4)


def first_tokens(advantage: GroupMean, rewards: list[list[float]]) -> list[float]:
    _, credit = advantage({}, batch(rewards))
    return [float(a[0]) for a in credit.advantages]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 0, 0, 1], [0.8660254, -0.8660254, -0.8660254, 0.8660254]),  # 0.5 / sqrt(4 * 0.25 / 3)
        ([3, 1], [0.7071068, -0.7071068]),  # 1 / sqrt(2)
        ([1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),  # 0.75 / 0.5
    ],
)
def test_grpo(rewards: list[float], expected: list[float]) -> None:
    assert first_tokens(GroupMean(), [rewards]) == pytest.approx(expected, rel=1e-5)


def test_dr_grpo_keeps_the_units_of_the_reward() -> None:
    assert first_tokens(GroupMean(scale="none"), [[1, 0, 0, 0], [3, 1]]) == [0.75, -0.25, -0.25, -0.25, 1, -1]


def test_lite_ppo_divides_by_the_std_of_the_raw_rewards_of_the_batch() -> None:
    # 1, 0, 1, 1: variance (3 * 0.25^2 + 0.75^2) / 3 = 0.25
    assert first_tokens(GroupMean(scale="batch"), [[1, 0], [1, 1]]) == pytest.approx([1, -1, 0, 0], abs=1e-5)


@pytest.mark.parametrize(
    ("center", "scale", "expected"),
    [
        # Means: 0.5 and 1 of the groups, 0.75 of the batch.
        ("group", "none", [0.5, -0.5, 0, 0]),
        ("batch", "none", [0.25, -0.75, 0.25, 0.25]),
        ("none", "none", [1, 0, 1, 1]),
        # Std of the batch: 0.5.
        ("group", "batch", [1, -1, 0, 0]),
        ("batch", "batch", [0.5, -1.5, 0.5, 0.5]),
        ("none", "batch", [2, 0, 2, 2]),
        # Stds of the groups: sqrt(0.5) and 0, which gives 0.
        ("group", "group", [0.7071068, -0.7071068, 0, 0]),
        ("batch", "group", [0.3535534, -1.0606602, 0, 0]),
        ("none", "group", [1.4142136, 0, 0, 0]),
        # Std within groups: sqrt((0.25 + 0.25) / 3) = 0.4082483.
        ("group", "within", [1.2247449, -1.2247449, 0, 0]),
        ("batch", "within", [0.6123724, -1.8371173, 0.6123724, 0.6123724]),
        ("none", "within", [2.4494897, 0, 2.4494897, 2.4494897]),
    ],
)
def test_center_and_scale_are_chosen_apart(center: str, scale: str, expected: list[float]) -> None:
    found = first_tokens(GroupMean(center=center, scale=scale), [[1, 0], [1, 1]])  # type: ignore[arg-type]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("center", ["group", "batch", "none"])
@pytest.mark.parametrize("scale", ["group", "batch", "within"])
def test_where_the_std_is_nothing_so_is_the_advantage(center: str, scale: str) -> None:
    equal = GroupMean(center=center, scale=scale)  # type: ignore[arg-type]
    assert first_tokens(equal, [[0.1] * 3, [0.1]]) == [0.0] * 4


@pytest.mark.parametrize("scale", ["group", "batch", "within", "none"])
def test_groups_without_a_comparison_get_exactly_nothing(scale: str) -> None:
    assert first_tokens(GroupMean(scale=scale), [[0.1] * 3, [5.0], [0.3] * 7]) == [0.0] * 11


def test_epsilon_is_added_to_the_std() -> None:
    expected = 0.5 / (np.sqrt(0.5) + 0.25)
    assert first_tokens(GroupMean(epsilon=0.25), [[1, 0]]) == pytest.approx([expected, -expected])


def test_every_token_of_a_trajectory_gets_the_same() -> None:
    _, credit = GroupMean(scale="none")({}, batch([[1, 0]], token_rewards=[[0.0, 0.5, 0.5], [0.0]]))
    assert [a.tolist() for a in credit.advantages] == [[0.5] * 3, [-0.5]]


@given(REWARDS)
def test_groups_have_mean_zero_and_unit_std(rewards: list[list[float]]) -> None:
    result = iter(first_tokens(GroupMean(epsilon=1e-12), rewards))
    for row in rewards:
        advantage = np.array([next(result) for _ in row])
        assert advantage.sum() == pytest.approx(0, abs=1e-4)
        if len(row) > 1 and np.ptp(row) > 1e-3:
            assert advantage.std(ddof=1) == pytest.approx(1, abs=1e-3)


@given(REWARDS, st.floats(-100, 100))
def test_a_constant_added_to_a_groups_rewards_changes_nothing(rewards: list[list[float]], shift: float) -> None:
    moved = [[r + shift for r in rewards[0]], *rewards[1:]]
    before, after = (first_tokens(GroupMean(scale="none"), r) for r in (rewards, moved))
    assert after == pytest.approx(before, abs=1e-4)
