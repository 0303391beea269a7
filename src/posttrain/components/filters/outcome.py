"""Keeps only the correct rollouts, or only the incorrect ones.

Source: the two halves of REINFORCE in Zhu et al. 2025, arXiv:2506.01347, section 2: learning from correct samples
alone (PSR) and from incorrect ones alone (NSR).

The kept group holds the scores of all its rollouts (`Group.pool`). Dropped rollouts count in no mean over tokens or
sequences, unlike rollouts with an advantage of 0. A step in which nothing is kept makes no update.

Differs: the release also drops kept samples at random, until their number can be shared out among its workers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class Outcome(Filter):
    """Splits every group by whether a rollout is solved."""

    keep: Literal["right", "wrong"] = "right"
    """Which rollouts are learned from: correct or incorrect ones."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the rollouts with that outcome."""
        kept, dropped = [], []
        for group in groups:
            own = tuple(t for t in group if t.solved == (self.keep == "right"))
            rest = tuple(t for t in group if t.solved != (self.keep == "right"))
            if own:
                kept.append(replace(group, trajectories=own, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                reason = f"only {'correct' if self.keep == 'right' else 'incorrect'} rollouts are kept"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped
