"""Keeps the turns of a dialogue that are better than those before them; the first turn is always kept.

Source: the criteria of RISE, arXiv:2407.18219 (cmu-mind/RISE at 4a2806e, workflow_convert.py): ``better`` than the turn
before, ``best`` is as good as all before; and its removal of blank and repeated answers, which is ``new`` alone here.
Answers are compared without the space around them. Its criterion ``all`` is no filter, and ``success`` is `outcome`.

A group is the turns of one dialogue in order, as `retried` gives them. In other groups each rollout counts as a try
after those before it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group, Trajectory, value_of


@frozen
class Improved(Filter):
    """Splits every dialogue by how a turn compares with those before it."""

    criterion: Literal["better", "best", "new"] = "better"
    """Which turns after the first are kept: ``better`` has a higher reward than the one before, ``best`` at least that
    of all before, ``new`` an answer that is neither blank nor one of those before."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the first turn and those that meet the criterion."""
        kept, dropped = [], []
        for group in groups:
            turns = group.trajectories
            meets = [i == 0 or self._meets(turns[i], turns[:i]) for i in range(len(turns))]
            own = tuple(t for t, keep in zip(turns, meets, strict=True) if keep)
            rest = tuple(t for t, keep in zip(turns, meets, strict=True) if not keep)
            kept.append(replace(group, trajectories=own, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                dropped.append(
                    Dropped(group=replace(group, trajectories=rest), reason=f"the turn is not {self._meaning}")
                )
        return state, kept, dropped

    def _meets(self, turn: Trajectory, before: Sequence[Trajectory]) -> bool:
        if self.criterion == "new":
            text = turn.completion.strip()
            return bool(text) and text not in {earlier.completion.strip() for earlier in before}
        values = [value_of(earlier) for earlier in before]
        return value_of(turn) > values[-1] if self.criterion == "better" else value_of(turn) >= max(values)

    @property
    def _meaning(self) -> str:
        meaning = {"better": "better than the one before", "best": "as good as all before", "new": "a new answer"}
        return meaning[self.criterion]
