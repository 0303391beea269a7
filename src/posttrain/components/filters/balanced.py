"""Keeps `n` rollouts of each group: half correct and half incorrect, as far as the group has them.

Source: the down-sampling of Reinforce-Ada, Xiong et al. 2025, arXiv:2510.04996, and its released code. Of each group
floor(n/2) correct rollouts are kept, and incorrect ones for the rest. Where one side has too few, more of the other are
kept. Earlier rollouts come first. A group without a correct (or an incorrect) rollout is kept too: its advantages are
0, and its tokens count in the mean over tokens.

The kept group holds the scores of the whole pool (`Group.pool`), so that an advantage can use all of them as baseline.

Differs: nothing known.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class Balanced(Filter):
    """Keeps `n` rollouts of a group, correct and incorrect ones in equal parts."""

    n: PositiveInt = 4
    """Rollouts kept of each group. A smaller group is kept whole."""
    threshold: float = 0.7
    """A rollout with a score above this is correct, in units of reward. A rollout component that stops sampling by a
    threshold should have the same one."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Choose from every group that is larger than `n`."""
        kept, dropped = [], []
        for group in groups:
            if len(group) <= self.n:
                kept.append(group)
                continue
            chosen = self._choose(group.rewards > self.threshold)
            rest = tuple(t for i, t in enumerate(group) if i not in chosen)
            pool = group.pool or tuple(group.rewards.tolist())
            kept.append(replace(group, trajectories=tuple(t for i, t in enumerate(group) if i in chosen), pool=pool))
            dropped.append(
                Dropped(group=replace(group, trajectories=rest), reason=f"{self.n} of {len(group)} rollouts are kept")
            )
        return state, kept, dropped

    def _choose(self, correct_N: np.ndarray) -> set[int]:
        """Indices of the `n` rollouts to keep, of more than `n`."""
        correct, incorrect = np.flatnonzero(correct_N).tolist(), np.flatnonzero(~correct_N).tolist()
        num_incorrect = min(self.n - min(self.n // 2, len(correct)), len(incorrect))
        return {*correct[: self.n - num_incorrect], *incorrect[:num_incorrect]}
