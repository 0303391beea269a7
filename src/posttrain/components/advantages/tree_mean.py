"""TreePO: each return is compared with those of the attempts that went the same way, at every node of that way.

Source: Li et al. 2025 (TreePO), arXiv:2508.17445, and its released code. Attempt i passed through the prompt and some
nodes; at each it gets its return minus the mean return of all attempts of the group that passed there too. Nodes that
only one attempt passed say nothing and are left out. The raw advantage is the mean over the nodes, or the mean weighted
by the number of attempts; then the mean and the standard deviation over all tokens of the batch normalise it, so that
long attempts weigh more. Every token of an attempt gets the same.

Two attempts passed through the same node where their segments have the same `state_key`. Attempts without one have only
the prompt in common: a flat group, in which this is the reward minus the group's mean, whitened.

Differs: nothing known; the release can also leave out nodes of equal rewards, which its trained run does not.
"""

from collections import defaultdict
from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import whitened
from posttrain.types import Batch, Credit


@frozen
class TreeMean(Advantage):
    """Return minus the means of the subgroups along the way, whitened over the batch."""

    weights: Literal["equal", "size"] = "equal"
    """How much each node's comparison counts: all the same (the released run), or by the number of attempts that
    passed there (the default of the released function)."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every attempt's return at every node that it passed."""
        passed: dict[tuple[int, str | None], list[int]] = defaultdict(list)
        for i, (trajectory, group) in enumerate(zip(batch.trajectories, batch.group_N.tolist(), strict=True)):
            for key in dict.fromkeys(s.state_key for s in trajectory.segments if s.trained):
                passed[group, key].append(i)
        total_N, weight_N = np.zeros(len(batch.trajectories)), np.zeros(len(batch.trajectories))
        for members in passed.values():
            if len(members) > 1:
                weight = len(members) if self.weights == "size" else 1
                total_N[members] += weight * (batch.return_N[members] - batch.return_N[members].mean())
                weight_N[members] += weight
        raw_N = total_N / np.maximum(weight_N, 1)
        tokens = [np.full(len(r), raw) for raw, r in zip(raw_N, batch.token_rewards, strict=True)]
        return state, Credit(advantages=whitened(tokens))
