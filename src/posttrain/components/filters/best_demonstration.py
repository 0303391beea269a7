"""Keeps only the best demonstration of each group, in place of the first rollout.

Source: Critique-GRPO, Zhang et al. 2025, arXiv:2506.03106, and its released code: of the refinements of a group one is
kept, the first correct one or else the first of the best. It replaces the group's first own sample, so that the group
keeps its size. An incorrect one is kept too.

Differs: nothing known.
"""

from collections.abc import Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group, Trajectory, value_of


@frozen
class BestDemonstration(Filter):
    """Keeps one demonstration of each group."""

    in_place: bool = True
    """Whether it replaces the first rollout; otherwise the group grows by one."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Choose one demonstration of every group that has some."""
        kept, dropped = [], []
        for group in groups:
            shown = [t for t in group if t.demonstrated]
            own = [t for t in group if not t.demonstrated]
            best = max(shown, key=lambda t: (t.solved, value_of(t)), default=None)  # the first of the best
            replaced = own[0] if best is not None and own and self.in_place else None
            removed = {
                "another demonstration is better, or as good": tuple(t for t in shown if t is not best),
                "a demonstration replaces it": (replaced,) if replaced is not None else (),
            }
            out = {id(t) for trajectories in removed.values() for t in trajectories}
            kept.append(_with(group, [t for t in group if id(t) not in out]))
            dropped += [Dropped(group=_with(group, ts), reason=why) for why, ts in removed.items() if ts]
        return state, kept, dropped


def _with(group: Group, trajectories: Sequence[Trajectory]) -> Group:
    return replace(group, trajectories=tuple(trajectories))
