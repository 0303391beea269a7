"""From a larger pool of attempts at a task, keep a few: half of them right and half wrong, as far as there are any.

Source: the down-sampling of Reinforce-Ada, Xiong et al. 2025, arXiv:2510.04996, and its released code. Of each group
floor(n/2) right attempts are kept and the rest wrong ones; where one side has too few, more of the other are. First
come, first kept. A group without a right (or a wrong) attempt is kept too: it teaches nothing, and its tokens count in
the mean over tokens.

The kept group remembers the scores of the whole pool (`Group.pool`), so that an advantage can compare with all of it.

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
    """Keeps `n` attempts of a group, right and wrong ones in equal parts."""

    n: PositiveInt = 4
    """Attempts kept of each group; a smaller group is kept whole."""
    threshold: float = 0.7
    """A score above this is right, in units of reward; the rollout that decides when to stop should have the same."""

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
                Dropped(group=replace(group, trajectories=rest), reason=f"{self.n} of {len(group)} attempts are kept")
            )
        return state, kept, dropped

    def _choose(self, right_N: np.ndarray) -> set[int]:
        """Places of the `n` attempts to keep, of more."""
        right, wrong = np.flatnonzero(right_N).tolist(), np.flatnonzero(~right_N).tolist()
        num_wrong = min(self.n - min(self.n // 2, len(right)), len(wrong))
        return {*right[: self.n - num_wrong], *wrong[:num_wrong]}
