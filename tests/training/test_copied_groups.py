"""Copies of groups (DUPO) against weights on groups: the gradients of a step are equal."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.reducers import Reducer
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.reducers.tokens import Tokens
from posttrain.policies import Policy
from posttrain.signals import ADVANTAGE
from posttrain.stages.rl.refill import Refill
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.settings import Learning
from posttrain.types import Batch, Group
from tests.builders import batch

REWARDS = [[1.0, 0.0, 0.0], [1.0, 0.5], [0.0, 1.0, 1.0, 1.0]]
"""Of the rollouts of three groups."""


def gradient(policy: Policy, examples: list[Example], reducer: Reducer) -> torch.Tensor:
    policy.zero_grad()
    loss = Loss(per_token=PPOClip(), reducer=reducer)
    Learner(policy, Learning(), seed=0, num_steps=1).accumulate(examples, loss, 0.0)
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]).double()


@pytest.mark.slow
@pytest.mark.parametrize("reducer", [Tokens(), Sequences()])
def test_copies_of_groups_are_weights_on_groups(
    policy: Policy, examples_of: Callable[..., list[Example]], reducer: Reducer
) -> None:
    """A reducer's mean over a step with copies is that that counts each group once for each copy.

    The loss of a group alone is its sum over tokens (or over rollouts) over their number; so the gradient of a step is
    the sum of m n g over that of m n, with m the times that a group stands there, n its tokens (or rollouts), and g its
    own gradient.
    """
    drawn = examples_of(sum(map(len, REWARDS)), seed=3)
    lengths = [own.num_trained for own in drawn]
    rewards = [value for row in REWARDS for value in row]
    given = batch(REWARDS, token_rewards=[[0.0] * (n - 1) + [r] for n, r in zip(lengths, rewards, strict=True)])
    of = {id(t): (own, r) for t, own, r in zip(given.trajectories, drawn, given.token_rewards, strict=True)}

    def learned_from(groups: list[Group]) -> list[Example]:
        """The examples of a step with these groups, each with its advantage in that step."""
        both = [of[id(t)] for group in groups for t in group]
        credit = GroupMean()({}, Batch(groups=tuple(groups), token_rewards=tuple(r for _, r in both)))[1]
        numbers = [place for place, group in enumerate(groups) for _ in group]
        return [
            replace(own, group=number, columns={**own.columns, ADVANTAGE: advantage_T})
            for (own, _), number, advantage_T in zip(both, numbers, credit.advantages, strict=True)
        ]

    kept = list(given.groups)
    copies = Refill(rounds=0, when_spent="copies").copied(kept, 8, (0, 1))
    times = Counter(id(group) for group in (*kept, *copies))
    assert len(copies) == 5 and len(set(times.values())) > 1, "the groups have different weights"
    parts, total = [], 0.0
    for group in kept:
        own = learned_from([group])
        weight = times[id(group)] * (sum(e.num_trained for e in own) if isinstance(reducer, Tokens) else len(own))
        parts.append(weight * gradient(policy, own, reducer))
        total += weight
    expected = torch.stack(parts).sum(0) / total
    found = gradient(policy, learned_from([*kept, *copies]), reducer)
    assert float(found.norm()) > 0.0
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6 * float(expected.abs().max()))
    once = gradient(policy, learned_from(kept), reducer)
    assert float((once - expected).norm() / expected.norm()) > 0.01, "without copies it is another gradient"
