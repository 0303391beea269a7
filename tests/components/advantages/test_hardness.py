import numpy as np
import pytest

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.hardness import Hardness
from tests.builders import batch


def first_tokens(advantage: Hardness | GroupMean, rows: list[list[float]]) -> list[float]:
    _, credit = advantage({}, batch(rows))
    return [float(a_T[0]) for a_T in credit.advantages]


def test_hand_worked() -> None:
    """One of four correct: mu = -0.5, D = 1.384, A = 1.5 D and -0.5 D."""
    assert first_tokens(Hardness(), [[1, -1, -1, -1]]) == pytest.approx([1.5 * 1.384, *[-0.5 * 1.384] * 3])


def test_a_correct_rollout_of_a_hard_task_outweighs_one_of_an_easy_task() -> None:
    """One of eight correct, and seven of eight: D is 1.448 and 1.064."""
    hard = first_tokens(Hardness(), [[1] + [-1] * 7])[0]
    easy = first_tokens(Hardness(), [[1] * 7 + [-1]])[0]
    assert (hard, easy) == pytest.approx((1.75 * 1.448, 0.25 * 1.064))


def test_the_weight_goes_from_1_512_to_1() -> None:
    n = 10_000
    for correct, weight in ((1, 1.512), (n - 1, 1.0)):
        rewards = [1.0] * correct + [-1.0] * (n - correct)
        _, credit = Hardness()({}, batch([rewards], length=1))
        assert credit.metrics["hardness"] == pytest.approx(weight, abs=1e-4)


def test_without_slope_it_is_dr_grpo() -> None:
    rows = [[1.0, -1, -1], [1, 1, -1]]
    assert first_tokens(Hardness(slope=0.0, offset=1.0), rows) == first_tokens(GroupMean(scale="none"), rows)


def test_equal_rewards_and_single_rollouts_get_nothing() -> None:
    assert not np.any(first_tokens(Hardness(), [[1, 1], [-1, -1], [1]]))
