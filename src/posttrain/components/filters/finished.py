"""Leaves out the rollouts that were cut at the token limit: overlong filtering.

Source: AceReason-Nemotron 1.1, arXiv:2506.13284: in stages with a short limit, in which many rollouts are cut, these
are left out of the loss; with a long limit they are kept. The filter of DAPO, Yu et al. 2025, arXiv:2503.14476, section
3.4.

The kept group holds the scores of all its rollouts (`Group.pool`), but its mean is that of the kept ones.

Differs: whether rollouts that are left out count in the mean of their group is not in the papers.
"""

from collections.abc import Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class Finished(Filter):
    """Keeps the rollouts that ended before the limit."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split every group by whether a rollout was cut."""
        kept, dropped = [], []
        for group in groups:
            whole = tuple(t for t in group if t.stop_reason != "length")
            cut = tuple(t for t in group if t.stop_reason == "length")
            if whole:
                pool = (group.pool or tuple(group.rewards.tolist())) if cut else group.pool
                kept.append(replace(group, trajectories=whole, pool=pool))
            if cut:
                dropped.append(Dropped(group=replace(group, trajectories=cut), reason="cut at the token limit"))
        return state, kept, dropped
