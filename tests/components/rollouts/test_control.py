import asyncio
import importlib.util

import numpy as np
import pytest

from posttrain.components.rollouts.control import Control
from posttrain.datasets.reaching import STRIDE, TARGETS, Reaching, demonstrated
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.signals import LOGP
from posttrain.types import Group
from tests.builders import ScriptedSampler, task
from tests.flows import made_flow, signals

with_gymnasium = pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="needs gymnasium")


def collect(rollout: Control, key: str = "task", seed: int = 0, **settings: int) -> Group:
    policy = made_flow(**{"condition": 3, "token": "chain", **settings})
    sampler = Native().serve(policy, seed).bind(key)
    (group,) = asyncio.run(rollout.collect(task(key), {"policy": sampler}))
    return group


def test_an_episode_is_observation_and_action_one_after_another() -> None:
    group = collect(Control(n=2))
    for episode in group:
        assert [s.actor for s in episode.segments] == ["prompt", "policy", *["environment", "policy"] * 3]
        assert [s.turn for s in episode.segments] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert episode.num_trained == 4 and episode.stop_reason == "environment"
        place = episode.segments[0].vectors[0, :2].astype(np.float64)  # type: ignore[index]
        for seen, chain in zip(episode.segments[::2], episode.segments[1::2], strict=True):
            np.testing.assert_allclose(seen.vectors[0, :2], place, atol=1e-6)  # type: ignore[index]
            action = np.array(chain.text.split(), np.float32)
            place = place + STRIDE * np.clip(action, -1, 1)
            expected = np.exp(-2 * ((place - np.array(TARGETS[0])) ** 2).sum()) / 4
            assert chain.reward == pytest.approx(expected, abs=1e-6)


def test_rollouts_begin_alike_and_act_differently() -> None:
    first, second = collect(Control(n=2))
    assert np.array_equal(first.segments[0].vectors, second.segments[0].vectors)  # type: ignore[arg-type]
    assert first.segments[1].text != second.segments[1].text
    other = collect(Control(n=1), key="other").trajectories[0]
    assert not np.array_equal(first.segments[0].vectors, other.segments[0].vectors)  # type: ignore[arg-type]


def test_the_learner_sees_the_same_density_in_a_whole_episode() -> None:
    policy = made_flow(condition=3, token="chain")
    sampler = Native().serve(policy, 0).bind("task")
    (group,) = asyncio.run(Control(n=1).collect(task(), {"policy": sampler}))
    (episode,) = group
    np.testing.assert_allclose(signals(policy, episode)[LOGP].detach(), episode.behavior_logp, rtol=1e-5, atol=1e-5)


def test_the_limit_cuts_an_episode() -> None:
    (episode,) = collect(Control(max_turns=2))
    assert episode.num_trained == 2 and episode.stop_reason == "length"


def test_held_out_episodes_are_in_the_same_environment() -> None:
    rollout = Control(n=4, max_turns=3).held_out(1, Sampling(temperature=0.0))
    assert rollout == Control(n=1, max_turns=3, sampling=Sampling(temperature=0.0))


@with_gymnasium
def test_any_environment_of_gymnasium_goes() -> None:
    rollout = Control(id="Pendulum-v1", max_turns=5)
    rollout.check([task()])
    first, again = (collect(rollout, dims=1).trajectories[0] for _ in range(2))
    assert first.num_trained == 5 and all(s.reward < 0 for s in first.segments if s.trained)
    assert np.array_equal(first.vectors, again.vectors)  # type: ignore[arg-type]


@with_gymnasium
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="cannot make the environment 'Pendulumm-v1'"):
        Control(id="Pendulumm-v1").check([task()])
    with pytest.raises(UserError, match="needs a Box of numbers"):
        Control(id="CartPole-v1").check([task()])
    with pytest.raises(UserError, match="takes actions of 1 numbers"):
        collect(Control(id="Pendulum-v1"))


def test_text_is_refused() -> None:
    with pytest.raises(UserError, match="needs a flow"):
        asyncio.run(Control().collect(task(), {"policy": ScriptedSampler("a")}))


def test_demonstrations_go_to_both_targets() -> None:
    rng = np.random.default_rng(0)
    moves = np.array([demonstrated(rng)[1][0] for _ in range(200)])
    assert 0.3 < (moves > 0.5).mean() < 0.7 and 0.3 < (moves < -0.5).mean() < 0.7
    assert Reaching().reset(seed=3)[0].tolist() == Reaching().reset(seed=3)[0].tolist()
