"""Keeps rollouts that are right with a hint where the plain one is wrong: the boundary of what a model can do.

Source: Hint-RFT of START, arXiv:2503.04625: the greedy run without a hint is wrong, the hinted one right and without
repetition. A hinted run that calls no tool is dropped; that rule is ours. Which rollouts have hints is the fact
`Inserted` of the rollout `hint_infer`. In groups without a hinted rollout all right ones are kept that have no
repetition (round 2 of the paper).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.components.rollouts import Inserted
from posttrain.types import Group, Trajectory


@frozen
class Boundary(Filter):
    """Keeps correct rollouts by whether the plain one is wrong."""

    keep: Literal["boundary", "hinted", "plain"] = "boundary"
    """``boundary`` is the paper's; ``hinted`` keeps all right hinted rollouts, ``plain`` the right plain ones, for
    comparison."""
    executed: Annotated[int, Field(ge=0, le=1000)] = 1
    """Fewest calls of a hinted rollout that the tool answered."""
    repeats: Annotated[int, Field(ge=2, le=1000)] = 3
    """A rollout in which a line that is not empty stands this often is repetitive."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep what each group gives."""
        kept, dropped = [], []
        for group in groups:
            own = self._chosen(group)
            if own:
                trajectories = tuple(group.trajectories[i] for i in own)
                kept.append(replace(group, trajectories=trajectories, pool=group.pool or tuple(group.rewards.tolist())))
            rest = tuple(t for i, t in enumerate(group) if i not in own)
            if rest:
                reason = "the plain rollout is right, or this one is wrong, repetitive or without a call"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped

    def _chosen(self, group: Group) -> list[int]:
        """Places of the rollouts that are kept."""
        hinted = [_insertions(t) > 0 for t in group]
        right = [t.solved and not self._repetitive(t) for t in group]
        if self.keep == "plain" or not any(hinted):
            return [i for i, ok in enumerate(right) if ok and not hinted[i]]
        solved_plainly = any(t.solved and not own for t, own in zip(group, hinted, strict=True))
        if self.keep == "boundary" and solved_plainly:
            return []
        called = [(fact := t.fact(Inserted)) is not None and fact.executed >= self.executed for t in group]
        return [i for i in range(len(group)) if hinted[i] and right[i] and called[i]]

    def _repetitive(self, trajectory: Trajectory) -> bool:
        lines = Counter(line.strip() for line in trajectory.completion.splitlines() if line.strip())
        return max(lines.values(), default=0) >= self.repeats


def _insertions(trajectory: Trajectory) -> int:
    fact = trajectory.fact(Inserted)
    return 0 if fact is None else fact.insertions
