"""Drops groups whose rewards are all equal, in which every group-relative advantage is 0.

Source: dynamic sampling of DAPO, Yu et al. 2025, arXiv:2503.14476, section 3.2. ``by="correctness"`` drops groups that
are all correct or all incorrect, as its release does: a penalty on length makes rewards differ in these too.

Differs: the paper also samples until the batch is full again; a filter only drops. A group of one has equal
rewards, so this is not for methods that sample once per task.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class ZeroVariance(Filter):
    """Drops groups whose rewards are all equal."""

    by: Literal["reward", "correctness"] = "reward"
    """What is compared: values of the rewards, or whether each rollout is correct."""
    tolerance: NonNegativeFloat = 1e-6
    """Rewards within this distance of one another are equal, in units of reward."""

    @property
    def needs_several(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the groups whose highest and lowest rewards differ."""
        kept, dropped = [], []
        for group in groups:
            if self._varies(group):
                kept.append(group)
            else:
                dropped.append(Dropped(group=group, reason=self._reason(group)))
        return state, kept, dropped

    def _varies(self, group: Group) -> bool:
        if self.by == "correctness":
            return len({trajectory.solved for trajectory in group}) > 1
        return bool(np.ptp(group.rewards) > self.tolerance)

    def _reason(self, group: Group) -> str:
        if self.by == "correctness":
            return f"all {len(group)} are {'correct' if group.trajectories[0].solved else 'incorrect'}"
        return f"all {len(group)} rewards are {group.rewards[0]:g}"
