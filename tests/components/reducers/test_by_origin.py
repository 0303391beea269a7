import numpy as np
import pytest

from posttrain.components.reducers.by_origin import ByOrigin
from posttrain.components.reducers.constant import Constant
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.reducers.tokens import Tokens

GROUPS = np.array([0, 0, 1])


def test_each_part_has_its_own_mean() -> None:
    """Three sampled tokens, two of them after a prefix of one, and a demonstration of four."""
    both = ByOrigin(sampled=Tokens(), demonstrated=Tokens())
    sampled_N, demonstrated_N = both.by_origin(np.array([1, 2, 0]), np.array([0, 1, 4]), GROUPS)
    assert sampled_N.tolist() == pytest.approx([1 / 3] * 3)
    assert demonstrated_N.tolist() == pytest.approx([1 / 5] * 3)


def test_more_demonstrations_do_not_dilute_the_rollouts() -> None:
    both = ByOrigin(sampled=Tokens(), demonstrated=Sequences())
    few, _ = both.by_origin(np.array([3, 2, 0]), np.array([0, 0, 1]), GROUPS)
    many, of_experts = both.by_origin(np.array([3, 2, 0]), np.array([0, 0, 900]), GROUPS)
    assert np.array_equal(few, many)
    assert of_experts[2] == pytest.approx(1 / 900)


def test_without_demonstrations_it_is_the_reducer_of_sampled_tokens() -> None:
    length_N = np.array([3, 1, 7])
    both = ByOrigin(sampled=Constant(length=10), demonstrated=Tokens())
    assert np.array_equal(both.weights(length_N, GROUPS), Constant(length=10).weights(length_N, GROUPS))
    sampled_N, demonstrated_N = both.by_origin(length_N, np.zeros(3, np.int64), GROUPS)
    assert np.array_equal(sampled_N, Constant(length=10).weights(length_N, GROUPS))
    assert np.isfinite(demonstrated_N).all()


def test_other_reducers_treat_all_tokens_alike() -> None:
    sampled_N, demonstrated_N = Sequences().by_origin(np.array([1, 2]), np.array([3, 0]), np.array([0, 1]))
    assert sampled_N.tolist() == demonstrated_N.tolist() == pytest.approx([1 / 8, 1 / 4])
