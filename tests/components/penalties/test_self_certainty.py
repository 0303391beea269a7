"""Self-certainty by hand: its three readings, over the tokens of the rationale only."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from posttrain.components.penalties.self_certainty import SelfCertainty
from posttrain.components.rollouts import Spans
from posttrain.signals import OLD_CERTAINTY, OLD_ENTROPY, OLD_SELF_CERTAINTY
from posttrain.types import Trajectory
from tests.builders import trajectory

# Four possible tokens: uniform, then one of them certain but for kl_up, then halves on two.
UNIFORM, SURE, HALF = 0.0, log(4), log(2)
SAID = {
    OLD_CERTAINTY: np.array([9.0, UNIFORM, SURE, HALF, 9.0], np.float32),
    OLD_ENTROPY: np.array([0.0, log(4), 0.0, log(2), 0.0], np.float32),
    OLD_SELF_CERTAINTY: np.array([9.0, 0.0, 3.0, 6.0, 9.0], np.float32),
}


def written(*ranges: tuple[int, int], tag: str = '"rationale"') -> Trajectory:
    return replace(trajectory(5), facts=(Spans(ranges={tag: ranges}),))


@pytest.mark.parametrize(
    ("reading", "nats"),
    [("kl_pu", [UNIFORM, SURE, HALF]), ("kl_up", [0.0, 3.0, 6.0]), ("printed", [UNIFORM, SURE / 4, HALF / 4])],
)
def test_readings_by_hand(reading: str, nats: list[float]) -> None:
    penalty = SelfCertainty(coefficient=0.5, reading=reading)  # type: ignore[arg-type]
    bonus = penalty.in_reward(written((1, 4)), {signal: SAID[signal] for signal in penalty.needs})
    assert bonus.tolist() == pytest.approx([0.0, *(0.5 * own / 3 for own in nats), 0.0])


def test_the_bonus_is_a_mean_and_a_completion_without_a_rationale_has_none() -> None:
    penalty = SelfCertainty(coefficient=1.0)
    assert penalty.in_reward(written((2, 3)), SAID).sum() == pytest.approx(SURE)
    assert penalty.in_reward(written((2, 3), (3, 4)), SAID).sum() == pytest.approx((SURE + HALF) / 2)
    assert not penalty.in_reward(written(), SAID).any() and not penalty.in_reward(trajectory(5), SAID).any()
    thought = SelfCertainty(coefficient=1.0, tag="think")
    assert thought.tags == {"think"}
    assert thought.in_reward(written((2, 3), tag="think"), SAID).sum() == pytest.approx(SURE)


def test_tokens_that_nobody_sampled_are_left_out() -> None:
    forced = replace(trajectory(logp=[-1.0, -1.0, float("nan"), -1.0, -1.0]), facts=written((1, 4)).facts)
    bonus = SelfCertainty(coefficient=1.0).in_reward(forced, SAID)
    assert bonus.tolist() == pytest.approx([0.0, UNIFORM, 0.0, HALF / 2, 0.0])
