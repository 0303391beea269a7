import math

import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.shifted_clip import ShiftedClip
from tests.builders import gradients, random_tokens, tokens

log = math.log


def slope(new: float, old: float, sampled: float, advantage: float) -> tuple[float, float]:
    """Loss and gradient of one token, from its three probabilities."""
    these = tokens([[log(new)]], old_logp=[[log(old)]], behavior_logp=[[log(sampled)]], advantage=[[advantage]])
    loss_T = ShiftedClip()(these).loss_T
    return loss_T.item(), gradients(loss_T.sum(), these)["logp_T"].item()


def test_hand_worked() -> None:
    """c = .4 / .2 = 2: bounds 1.8 and 2.2. r = 2.5 is cut for A > 0 and free for A < 0; 1.5 the other way round."""
    assert slope(0.5, 0.4, 0.2, 1.0) == pytest.approx((-2.2, 0.0))
    assert slope(0.5, 0.4, 0.2, -1.0) == pytest.approx((2.5, 2.5))
    assert slope(0.3, 0.4, 0.2, -1.0) == pytest.approx((1.8, 0.0))
    assert slope(0.3, 0.4, 0.2, 1.0) == pytest.approx((-1.5, -1.5))


@pytest.mark.parametrize("ratio", [0.1, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_token_whose_probability_has_not_changed_is_not_clipped(ratio: float, advantage: float) -> None:
    """Far from its sampling, and at the policy of the start of the step."""
    p = 0.02 * ratio
    assert slope(p, p, 0.02, advantage) == pytest.approx((-ratio * advantage, -ratio * advantage))
    off = tokens([[log(p)]], old_logp=[[log(0.02)]], advantage=[[advantage]])
    clipped = gradients(PPOClip()(off).loss_T.sum(), off)["logp_T"].item()
    assert (clipped == 0) == ((ratio > 1) == (advantage > 0)), "PPO's own clip stops such a token on one side"


def test_a_lower_bound_below_0_never_acts() -> None:
    """c = .1, the bound is -.1: a ratio of .001 keeps its gradient."""
    assert slope(0.0005, 0.05, 0.5, -1.0) == pytest.approx((0.001, 0.001))


def test_for_fresh_rollouts_it_is_ppo_to_the_bit() -> None:
    these = random_tokens(3, gap=0.4, dtype=torch.float32)
    fresh = random_tokens(3, gap=0.4, dtype=torch.float32)
    object.__setattr__(fresh, "behavior_logp_T", fresh.old_logp_T)
    ours, theirs = ShiftedClip(clip_high=0.28)(fresh), PPOClip(clip_high=0.28)(these)
    assert torch.equal(ours.loss_T, theirs.loss_T)
    found = [gradients(each.loss_T.sum(), t)["logp_T"] for each, t in ((ours, fresh), (theirs, these))]
    assert torch.equal(*found)


def test_finite_differences() -> None:
    these = random_tokens(5, gap=0.5)
    found = gradients(ShiftedClip()(these).loss_T.sum(), these)["logp_T"]
    step = 1e-6
    for i in range(len(these.logp_T)):
        losses = []
        for sign in (step, -step):
            moved = random_tokens(5, gap=0.5)
            with torch.no_grad():
                moved.logp_T[i] += sign
            losses.append(ShiftedClip()(moved).loss_T.sum().item())
        assert found[i].item() == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-5)


def test_demonstrations_have_a_ratio_to_the_start_of_the_step() -> None:
    these = tokens([[log(0.3)]], old_logp=[[log(0.2)]], behavior_logp=[[math.nan]], advantage=[[1.0]])
    assert ShiftedClip()(these).loss_T.item() == pytest.approx(-1.2)
