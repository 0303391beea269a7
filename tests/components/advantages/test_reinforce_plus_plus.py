import numpy as np
import pytest

from posttrain.components.advantages.reinforce_plus_plus import ReinforcePlusPlus
from tests.builders import batch


def advantages(member: ReinforcePlusPlus, rewards: list[list[float]], tokens: list[list[float]]) -> list[list[float]]:
    _, credit = member({}, batch(rewards, token_rewards=tokens))
    return [a.tolist() for a in credit.advantages]


def test_tokens_are_whitened_over_the_batch() -> None:
    # Returns to go 1 1 | 0 0: mean 0.5, variance 4 * 0.25 / 3.
    first, second = advantages(ReinforcePlusPlus(), [[1], [0]], [[0, 1], [0, 0]])
    assert first == pytest.approx([0.8660254, 0.8660254])
    assert second == pytest.approx([-0.8660254, -0.8660254])


def test_costs_of_tokens_that_are_past_do_not_count() -> None:
    # Returns to go 0.8 0.9 | -0.2 0: mean 0.375, variance 0.9275 / 3.
    first, second = advantages(ReinforcePlusPlus(), [[1], [0]], [[-0.1, 0.9], [-0.2, 0.0]])
    assert first == pytest.approx([0.764351, 0.944199], abs=2e-6)
    assert second == pytest.approx([-1.034123, -0.674428], abs=2e-6)


def test_long_trajectories_weigh_more_in_the_mean() -> None:
    # 1 1 1 | 0: mean 0.75, variance 0.25.
    assert advantages(ReinforcePlusPlus(), [[1, 0]], [[0, 0, 1], [0]]) == [
        pytest.approx([0.5] * 3),
        pytest.approx([-1.5]),
    ]


def test_baseline_is_the_mean_return_of_the_group() -> None:
    # 1 0 | 3 3 less 0.5 | 3: 0.5 -0.5 0 0, mean 0, variance 0.5 / 3.
    result = advantages(ReinforcePlusPlus(baseline="group"), [[1, 0], [3, 3]], [[1], [0], [3], [3]])
    assert [a[0] for a in result] == pytest.approx([1.2247449, -1.2247449, 0, 0])


def test_a_batch_of_one_token_gets_nothing() -> None:
    assert advantages(ReinforcePlusPlus(), [[1]], [[1]]) == [[0.0]]


@pytest.mark.parametrize("baseline", ["none", "group"])
def test_equal_returns_get_exactly_nothing(baseline: str) -> None:
    result = advantages(ReinforcePlusPlus(baseline=baseline), [[0.1] * 3], [[0.1]] * 3)
    assert result == [[0.0]] * 3


def test_mean_is_zero_and_std_one() -> None:
    rng = np.random.default_rng(0)
    tokens = [rng.normal(3, 2, size=int(rng.integers(1, 9))).tolist() for _ in range(40)]
    flat = np.concatenate(advantages(ReinforcePlusPlus(), [[0.0] * 40], tokens))
    assert flat.mean() == pytest.approx(0, abs=1e-6)
    assert flat.std(ddof=1) == pytest.approx(1, abs=1e-6)
