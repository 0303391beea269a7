"""Drops rollouts whose reward is close to the mean of the others of their group: they would hardly move the policy.

Source: LOOP, arXiv:2502.01600, and its release: after leave-one-out advantages, rollouts with abs(A) < 0.01 are not
trained on. With `positive`, only those above the mean are (its option).

A kept group holds the scores of all its rollouts (`Group.pool`), so that an advantage can have all of them as baseline.

Differs: the release rounds the number of kept rollouts up to a multiple of its workers.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group

EPSILON = 1e-9
"""Smallest distance that is more than rounding, in units of reward."""


@frozen
class NearBaseline(Filter):
    """Keeps rollouts by their distance from the mean of the others."""

    smallest: NonNegativeFloat = 0.01
    """Distance below which a rollout is dropped, in units of reward."""
    positive: bool = False
    """Whether rollouts below the mean of the others are dropped too."""

    @property
    def needs_several(self) -> bool:
        """True: one rollout has no others."""
        return True

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split every group."""
        kept, dropped = [], []
        for group in groups:
            size = len(group)
            distance_N = (group.rewards - group.rewards.mean()) * size / max(size - 1, 1)
            far = (distance_N if self.positive else abs(distance_N)) >= max(self.smallest, EPSILON)
            own = tuple(t for t, is_far in zip(group, far, strict=True) if is_far)
            rest = tuple(t for t, is_far in zip(group, far, strict=True) if not is_far)
            if own:
                pool = (group.pool or tuple(group.rewards.tolist())) if rest else group.pool
                kept.append(replace(group, trajectories=own, pool=pool))
            if rest:
                reason = f"its reward is within {self.smallest:g} of the mean of the others"
                reason += " or below it" if self.positive else ""
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped
