"""TreePO: each return minus the mean return of the rollouts through the same node, at every node of its path.

Source: Li et al. 2025 (TreePO), arXiv:2508.17445, and its released code. Rollout i passes through the prompt and some
nodes. At each it gets its return minus the mean return of all rollouts of the group through that node. Nodes with one
rollout are left out. The raw advantage is the mean over the nodes, or the mean weighted by the number of rollouts. It
is then normalized by the mean and the standard deviation over all tokens of the batch, so that long rollouts weigh
more. Every token of a rollout gets the same.

Two rollouts pass through the same node where their segments have the same `state_key`. Rollouts without one share only
the prompt: a flat group, in which this is the reward minus the group's mean, whitened.

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
    """Return minus the means of the subgroups along the path, whitened over the batch."""

    weights: Literal["equal", "size"] = "equal"
    """Weight of each node: all equal (the released run), or the number of rollouts through it (the default of the
    released function)."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every rollout's return at every node of its path."""
        by_node: dict[tuple[int, str | None], list[int]] = defaultdict(list)
        for i, (trajectory, group) in enumerate(zip(batch.trajectories, batch.group_N.tolist(), strict=True)):
            for key in dict.fromkeys(s.state_key for s in trajectory.segments if s.trained):
                by_node[group, key].append(i)
        total_N, weight_N = np.zeros(len(batch.trajectories)), np.zeros(len(batch.trajectories))
        for members in by_node.values():
            if len(members) > 1:
                weight = len(members) if self.weights == "size" else 1
                total_N[members] += weight * (batch.return_N[members] - batch.return_N[members].mean())
                weight_N[members] += weight
        raw_N = total_N / np.maximum(weight_N, 1)
        tokens = [np.full(len(r), raw) for raw, r in zip(raw_N, batch.token_rewards, strict=True)]
        return state, Credit(advantages=whitened(tokens))
