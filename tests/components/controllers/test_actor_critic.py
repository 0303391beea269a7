"""The actor-critic: limits, the reward, and that it learns which action is rewarded."""

import math

import numpy as np
import pytest
import torch

from posttrain.components.controllers import Knobs, Measured
from posttrain.components.controllers._soft import _sampled, _tensors, act, learn, new_networks
from posttrain.components.controllers.actor_critic import ActorCritic

FIRST = Knobs(clips=[0.1, 2.0], noise=1.5)


def test_scales_stay_within_their_limits() -> None:
    controller = ActorCritic(clip_reach=1.0, noise_reach=0.2)
    found = controller.knobs({**controller.start(FIRST, 0), "action": [1.0, -1.0, 1.0]}, FIRST)
    assert list(found.clips) == pytest.approx([0.1 * math.e, 2.0 / math.e])
    assert found.noise == pytest.approx(1.5 * math.exp(0.2))


def test_the_reward_is_the_fall_of_the_loss_less_the_price() -> None:
    """The first interval has no loss before it; the second fell from 3 to 2.5 and cost a tenth at price 2."""
    controller = ActorCritic(price=2.0)
    state = controller.start(FIRST, 0)
    for loss in (3.0, 2.5):
        state = controller.observe(state, Measured(within=[0.5, 0.5], loss=loss, spent=0.3, cost=0.1))
    [(seen, action, reward, following)] = state["replay"]
    assert reward == pytest.approx(0.5 - 2.0 * 0.1)
    assert seen[:4] == [0.5, 0.5, 3.0, 0.0] and following[2:5] == [2.5, 0.5, 0.3]
    assert len(action) == 3 and all(-1 < value < 1 for value in action)


def test_the_density_is_that_of_the_squashed_gaussian() -> None:
    """Its integral over (-1, 1) is 1, in one dimension."""
    actor = _tensors(new_networks(2, 1, 0)["actor"])
    seen = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    noise = torch.linspace(-6, 6, 4001, dtype=torch.float64)[:, None]
    actions, logp = _sampled(actor, seen.expand(4001, 2), noise)
    assert float(torch.trapezoid(logp.exp(), actions[:, 0])) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_it_learns_which_action_is_rewarded() -> None:
    """A bandit that rewards -(a - 0.6)^2: the mean action moves towards 0.6."""
    networks, rng = new_networks(1, 1, 0), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, 64)
    replay = [[[0.0], [float(a)], float(-4 * (a - 0.6) ** 2), [0.0]] for a in actions]
    before = np.mean([act(networks, [0.0], (1, i))[0] for i in range(200)])
    for i in range(600):
        networks = learn(networks, replay, 32, 3e-3, (2, i))
    after = np.mean([act(networks, [0.0], (1, i))[0] for i in range(200)])
    assert abs(before) < 0.15 and abs(after - 0.6) < 0.25
