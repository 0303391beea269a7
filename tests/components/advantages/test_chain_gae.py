"""Credit along the turns of several agents, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.chain_gae import ChainGAE
from posttrain.signals import OLD_VALUE
from posttrain.types import Batch, Credit, Group, Segment
from tests.builders import batch


def two_agents(rewards: list[float], values: list[float]) -> Batch:
    """A turn of two tokens by the policy, what the environment writes, and a turn of one token by the actor."""
    given = batch([[1]], token_rewards=[rewards], signals={OLD_VALUE: [values]})
    [trajectory] = given.trajectories
    prompt = trajectory.segments[0]
    own = [
        Segment(actor=actor, token_ids=np.zeros(count, np.int64), trained=trained, turn=turn)
        for actor, count, trained, turn in [("policy", 2, True, 0), ("environment", 3, False, 1), ("actor", 1, True, 1)]
    ]
    return replace(given, groups=(Group(trajectories=(replace(trajectory, segments=(prompt, *own)),)),))


def credit_of(advantage: ChainGAE, given: Batch) -> Credit:
    return advantage({}, given)[1]


def test_turns_by_hand() -> None:
    """V of the first tokens .5 and .6: A_2 = 1 - .6; A_1 = .9 x .6 - .5 + .9 x .5 x A_2. The value .4 is not read."""
    credit = credit_of(ChainGAE(gamma=0.9, lam=0.5, normalize=False), two_agents([0, 0, 1], [0.5, 0.4, 0.6]))
    assert credit.advantages[0].tolist() == pytest.approx([0.22, 0.22, 0.4], abs=1e-6)
    assert credit.value_targets[0].tolist() == pytest.approx([0.72, 0.72, 1.0], abs=1e-6)


def test_tokens_by_hand() -> None:
    """A_3 = .4; A_2 = .54 - .4 + .45 x .4; A_1 = .36 - .5 + .45 A_2."""
    credit = credit_of(
        ChainGAE(gamma=0.9, lam=0.5, normalize=False, level="token"), two_agents([0, 0, 1], [0.5, 0.4, 0.6])
    )
    assert credit.advantages[0].tolist() == pytest.approx([0.004, 0.32, 0.4], abs=1e-6)


def test_the_chain_is_cut_only_where_an_episode_ends() -> None:
    """Between agents of a step and between steps it goes on; the rollouts beside it change nothing."""
    one = two_agents([0, 0, 1], [0.5, 0.4, 0.6])
    [own] = one.groups[0].trajectories
    longer = replace(own, segments=(*own.segments, *(replace(s, turn=s.turn + 2) for s in own.segments[1:])))
    given = replace(
        one,
        groups=(Group(trajectories=(own, longer, own)),),
        token_rewards=(np.array([0, 0, 1.0]), np.array([0, 0, 0, 0, 0, 1.0]), np.array([0, 0, 1.0])),
        signals={OLD_VALUE: tuple(np.array(v) for v in ([0.5, 0.4, 0.6], [0.5, 0.4, 0.6] * 2, [0.5, 0.4, 0.6]))},
    )
    advantages = credit_of(ChainGAE(gamma=0.9, lam=0.5, normalize=False), given).advantages
    assert advantages[0].tolist() == advantages[2].tolist() == pytest.approx([0.22, 0.22, 0.4], abs=1e-6)
    second = 0.9 * 0.5 - 0.6 + 0.45 * 0.22
    first = 0.9 * 0.6 - 0.5 + 0.45 * second
    assert advantages[1].tolist() == pytest.approx([first, first, second, 0.22, 0.22, 0.4], abs=1e-6)


def test_rewards_within_a_turn_are_its_sum() -> None:
    credit = credit_of(ChainGAE(gamma=1.0, lam=1.0, normalize=False), two_agents([0.25, 0.5, 1], [0, 0, 0]))
    assert credit.advantages[0].tolist() == pytest.approx([1.75, 1.75, 1.0])


def test_zeros_are_not_counted_but_shifted() -> None:
    """Advantages 1, 3 and 0: mean 2 and std 1 of those that are not 0."""
    given = batch([[1, 3, 0]], token_rewards=[[1], [3], [0]], signals={OLD_VALUE: [[0], [0], [0]]})
    credit = credit_of(ChainGAE(), given)
    assert [a.tolist() for a in credit.advantages] == [[pytest.approx(x)] for x in (-1.0, 1.0, -2.0)]


def test_equal_advantages_beside_zeros_are_over_the_std_of_all() -> None:
    """Advantages 1 and 0: mean 1 and std 0 of that which is not 0; std 0.5 of both."""
    given = batch([[1, 0]], token_rewards=[[1], [0]], signals={OLD_VALUE: [[0], [0]]})
    assert [a.tolist() for a in credit_of(ChainGAE(), given).advantages] == [[pytest.approx(x)] for x in (0.0, -2.0)]


def test_all_zero_stays_so_and_one_agent_is_like_gae() -> None:
    given = batch([[0, 0]], token_rewards=[[0], [0]], signals={OLD_VALUE: [[0], [0]]})
    assert [a.tolist() for a in credit_of(ChainGAE(), given).advantages] == [[0.0], [0.0]]
