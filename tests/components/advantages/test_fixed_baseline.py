import numpy as np
import pytest

from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.types import Credit
from tests.builders import batch


def credit(baseline: float, rewards: list[list[float]]) -> Credit:
    return FixedBaseline(baseline=baseline)({}, batch(rewards))[1]


def test_the_constant_is_taken_off_every_token() -> None:
    found = credit(0.25, [[1.0, -1.0], [0.0]]).advantages
    assert [a.tolist() for a in found] == [[0.75, 0.75], [-1.25, -1.25], [-0.25, -0.25]]


@pytest.mark.parametrize(
    ("right", "baseline", "share"),
    [(1, 0.0, 0.25), (1, -0.5, 0.5), (1, 0.5, 0.1), (2, 0.5, 0.25), (3, -0.5, 0.9), (2, 0.0, 0.5)],
)
def test_the_share_of_positives_by_hand(right: int, baseline: float, share: float) -> None:
    """1 of 4 right, c = -0.5: 1.5 of 1.5 + 3 * 0.5. c = 0.5: 0.5 of 0.5 + 3 * 1.5. And so on."""
    rewards = [1.0] * right + [-1.0] * (4 - right)
    assert credit(baseline, [rewards]).metrics["effective_positives"] == pytest.approx(share)


def test_the_share_of_positives_is_the_papers() -> None:
    for count in range(1, 20):
        for c in np.linspace(-0.9, 0.9, 7):
            p = count / 20
            found = credit(float(c), [[1.0] * count + [-1.0] * (20 - count)]).metrics["effective_positives"]
            assert found == pytest.approx(p * (1 - c) / (1 + (1 - 2 * p) * c), rel=1e-6)


def test_where_nothing_has_weight_there_is_no_share() -> None:
    assert credit(1.0, [[1.0, 1.0]]).metrics == {}


@pytest.mark.parametrize(
    ("factors", "expected", "share"),
    [
        ({"positive": 0.1}, [0.1, -1.0, -1.0], 0.1 / 2.1),
        ({"positive": 1.0, "negative": 0.0}, [1.0, 0.0, 0.0], 1.0),
        ({"positive": 0.0}, [0.0, -1.0, -1.0], 0.0),
        ({"positive": 3.0, "negative": 2.0, "baseline": 0.5}, [1.5, -3.0, -3.0], 1.5 / 7.5),
    ],
)
def test_correct_and_incorrect_rollouts_have_weights_of_their_own(
    factors: dict[str, float], expected: list[float], share: float
) -> None:
    """Rewards +1, -1 and -1, whose differences from a baseline of 0.5 are 0.5, -1.5 and -1.5."""
    found = FixedBaseline(**factors)({}, batch([[1.0, -1.0, -1.0]]))[1]
    assert [a.tolist() for a in found.advantages] == [pytest.approx([x, x]) for x in expected]
    assert found.metrics["effective_positives"] == pytest.approx(share)


def test_factors_of_one_change_no_bit() -> None:
    rewards = np.random.default_rng(0).normal(size=(3, 5)).tolist()
    bare = [np.float32(float(np.float32(r)) - 0.3) for row in rewards for r in row]
    assert [a[0] for a in credit(0.3, rewards).advantages] == bare
