"""Of the demonstrations of a group only the best is kept, in the place of the first attempt.

Source: Critique-GRPO, Zhang et al. 2025, arXiv:2506.03106, and its released code: of the refinements of a group one is
kept, the first right one or else the first of the best; it takes the place of the group's first own sample, so that the
group keeps its size. A wrong one is kept too.

Differs: nothing known.
"""

from collections.abc import Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group, Trajectory, value_of


@frozen
class BestDemonstration(Filter):
    """Keeps one demonstration a group."""

    in_place: bool = True
    """Whether the first attempt is left out for it, or the group grows by one."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Choose in every group that has demonstrations."""
        kept, dropped = [], []
        for group in groups:
            shown = [t for t in group if t.demonstrated]
            own = [t for t in group if not t.demonstrated]
            best = max(shown, key=lambda t: (t.solved, value_of(t)), default=None)  # the first of the best
            replaced = own[0] if best is not None and own and self.in_place else None
            left_out = {
                "another demonstration is better, or as good": tuple(t for t in shown if t is not best),
                "a demonstration takes its place": (replaced,) if replaced is not None else (),
            }
            out = {id(t) for trajectories in left_out.values() for t in trajectories}
            kept.append(_with(group, [t for t in group if id(t) not in out]))
            dropped += [Dropped(group=_with(group, ts), reason=why) for why, ts in left_out.items() if ts]
        return state, kept, dropped


def _with(group: Group, trajectories: Sequence[Trajectory]) -> Group:
    return replace(group, trajectories=tuple(trajectories))
