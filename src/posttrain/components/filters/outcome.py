"""Learn from one kind of outcome only: from the attempts that were judged right, or from those that were not.

Source: the two halves of REINFORCE in Zhu et al. 2025, arXiv:2506.01347, section 2: learning from right samples alone
(PSR) and from wrong ones alone (NSR).

The kept group remembers the scores of all its attempts (`Group.pool`). Attempts that are left out count in no mean over
tokens or sequences, other than those with an advantage of 0. A step in which nothing is left makes no update.

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
    """Splits every group by the judgement."""

    keep: Literal["right", "wrong"] = "right"
    """Which attempts are learned from."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the attempts with that outcome."""
        kept, dropped = [], []
        for group in groups:
            own = tuple(t for t in group if t.solved == (self.keep == "right"))
            rest = tuple(t for t in group if t.solved != (self.keep == "right"))
            if own:
                kept.append(replace(group, trajectories=own, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                reason = f"only attempts that are {self.keep} are kept"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped
