"""Weights of demonstrations: hand-worked numbers, and what a step of imitation does with them."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.errors import UserError
from posttrain.stages.weights import Weights
from posttrain.types import Segment, Task, Trajectory


def shown(domain: str, tokens: int) -> Trajectory:
    ids = np.arange(tokens)
    segments = (
        Segment(actor="prompt", token_ids=np.arange(3)),
        Segment(actor="demonstration", token_ids=ids, trained=True),
    )
    return Trajectory(task=Task(key="k", prompt="p", domain=domain), segments=segments, stop_reason="stop")


def test_the_mean_over_tokens_is_the_weighted_sum_over_the_sum_of_weights() -> None:
    """Losses 1, 2 (expert) and 4, 8, 6 (other, weight 0.1): (3 + 1.8) / 2.3."""
    weights = Weights(by_domain={"expert": 1.0, "other": 0.1}).of([shown("expert", 2), shown("other", 3)])
    assert [len(own) for own in weights] == [2, 3]
    losses = np.array([1.0, 2.0, 4.0, 8.0, 6.0])
    assert np.mean(np.concatenate(weights) * losses) == pytest.approx(4.8 / 2.3)


def test_a_common_factor_changes_nothing_and_one_class_is_plain_imitation() -> None:
    batch = [shown("expert", 2), shown("other", 3)]
    ours = Weights(by_domain={"expert": 1.0, "other": 0.1}).of(batch)
    theirs = Weights(by_domain={"expert": 30.0, "other": 3.0}).of(batch)
    assert all(np.allclose(a, b) for a, b in zip(ours, theirs, strict=True))
    alone = Weights(by_domain={"expert": 1.0, "other": 0.1}).of([shown("other", 3), shown("other", 5)])
    assert all(np.allclose(own, 1.0) for own in alone)


def test_per_sequence_every_answer_counts_its_weight() -> None:
    """Whatever its length: sums of 1 / 1.1 and 0.1 / 1.1 of the 5 tokens."""
    ours = Weights(by_domain={"expert": 1.0, "other": 0.1}, per="sequence").of([shown("expert", 2), shown("other", 3)])
    assert [own.sum() for own in ours] == pytest.approx([5 / 1.1, 0.5 / 1.1])


def test_rewards_give_exponential_weights() -> None:
    """exp(0.9) = 2.46 with beta 1; 10 with beta = 0.9 / ln 10; huge rewards do not overflow."""
    for beta, ratio in ((1.0, 2.45960), (0.9 / math.log(10), 10.0)):
        weights = Weights(by_domain={"expert": 1.0, "other": 0.1}, beta=beta)
        assert weights.of_domain("expert") / weights.of_domain("other") == pytest.approx(ratio, rel=1e-5)
    assert Weights(by_domain={"expert": 100.0}, beta=1e-3).of_domain("expert") == 1.0
    assert Weights(by_domain={"a": 0.0, "b": -1.0}, beta=1.0).of_domain("b") == pytest.approx(math.exp(-1))


def test_bad_weights_are_refused() -> None:
    with pytest.raises(UserError, match=r"of domain 'web', which has no weight; weights.by_domain has expert"):
        Weights(by_domain={"expert": 1.0}).of_domain("web")
    with pytest.raises(UserError, match="must be above 0"):
        Weights(by_domain={"expert": 1.0, "other": 0.0}).of_domain("expert")
    for bad in ({}, {"expert": math.nan}, {"expert": math.inf}):
        with pytest.raises(ValidationError):
            Weights(by_domain=bad)
