"""The critic of a guide learns from the guide's tokens; at the switch the advantage is Q - V of the guide."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.last_writer import LastWriter
from posttrain.signals import OLD_VALUE
from posttrain.types import Batch, Group, Segment, Trajectory
from tests.builders import score, task


def written(policy: int, guide: int, reward: float = 0.0) -> Trajectory:
    """A prefix of the policy and a rest of the guide."""
    segments = (
        Segment(actor="prompt", token_ids=np.arange(3), text="abc"),
        Segment(actor="policy", token_ids=np.arange(policy), trained=True, logp=np.full(policy, -1.0, np.float32)),
        Segment(actor="guide", token_ids=np.arange(guide), trained=True),
    )
    return Trajectory(task=task(), segments=segments, stop_reason="stop", score=score(reward))


def batch_of(rollouts: list[Trajectory], values: list[list[float]]) -> Batch:
    rewards = []
    for t in rollouts:
        reward_T = np.zeros(t.num_trained, np.float32)
        assert t.score is not None
        reward_T[-1] = t.score.value
        rewards.append(reward_T)
    group = Group(key="task", trajectories=tuple(rollouts))
    signals = {OLD_VALUE: tuple(np.asarray(row, np.float32) for row in values)}
    return Batch(groups=(group,), token_rewards=tuple(rewards), signals=signals)


def test_only_the_last_writers_tokens_have_targets() -> None:
    these = batch_of([written(2, 2, 1.0), written(0, 2), written(2, 0)], [[0.5] * 4, [0.5] * 2, [0.5] * 2])
    _, plain = GAE(whiten=False)({}, these)
    _, credit = LastWriter(advantage=GAE(whiten=False))({}, these)
    assert [np.isnan(t).tolist() for t in credit.value_targets] == [
        [True, True, False, False],
        [False] * 2,
        [False] * 2,
    ]
    for own, all_T, advantage, before in zip(
        credit.value_targets, plain.value_targets, credit.advantages, plain.advantages, strict=True
    ):
        assert np.array_equal(own[~np.isnan(own)], all_T[~np.isnan(own)]) and np.array_equal(advantage, before)


P_GUIDE = {0: 0.3, 1: 0.6, 2: 0.9}
"""In each of three states, the probability that the guide goes on (to the next state; from the last to the goal)."""


def value(state: int) -> float:
    """V of the guide: 1 for the goal, 0 for falling off, exactly."""
    return 1.0 if state == 3 else P_GUIDE[state] * value(state + 1)


@pytest.mark.parametrize(("state", "goes_on"), [(0, True), (1, True), (0, False), (2, True)])
def test_at_the_switch_the_mean_advantage_is_q_minus_v_of_the_guide(state: int, goes_on: bool) -> None:
    """The policy takes one action, then the guide acts to the end: 4,000 roll-outs, values of the guide exact."""
    rng = np.random.default_rng(state)
    q = value(state + 1) if goes_on else 0.0
    rollouts, values = [], []
    for _ in range(4000):
        here, visited = (state + 1 if goes_on else -1), [state]
        while here in P_GUIDE:
            visited.append(here)
            here = here + 1 if rng.random() < P_GUIDE[here] else -1
        rollouts.append(written(1, len(visited) - 1, float(here == 3)))
        values.append([value(s) for s in visited])
    _, credit = LastWriter(advantage=GAE(gamma=1.0, lam=1.0, whiten=False))({}, batch_of(rollouts, values))
    found = np.array([a_T[0] for a_T in credit.advantages])
    assert found.mean() == pytest.approx(q - value(state), abs=0.03)
    assert q - value(state) != 0


def test_an_advantage_without_a_critic_has_no_targets() -> None:
    these = replace(batch_of([written(1, 1), written(1, 1)], [[0.0] * 2] * 2))
    _, credit = LastWriter(advantage=GroupMean())({}, these)
    assert credit.value_targets == ()
