r"""Keeps the best conversation of each task, of the better tasks by that reward.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740, dataloader): of a task's conversations the
one with the highest reward; the tasks are sorted by it, and those within `ranks` are kept, the best 70 % (for
mathematics and ARC 10 to 80 %, so that the very best are left out), as far as the reward is at least `least`. Both
agents' rollouts of a conversation are kept. Rollouts that are not conversations count one by one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.components.rollouts import Exchange
from posttrain.types import Group, Trajectory, value_of

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class BestConversations(Filter):
    """One conversation of each of the better tasks."""

    ranks: tuple[Share, Share] = (0.0, 0.7)
    """Shares of the tasks, sorted from the best, from the first of which to the second they are kept."""
    least: float = 0.5
    """Smallest reward that is learned from."""

    @field_validator("ranks")
    @classmethod
    def check_ranks(cls, ranks: tuple[float, float]) -> tuple[float, float]:
        """Refuse an empty range."""
        if ranks[0] >= ranks[1]:
            raise PydanticCustomError("ranks", "no rank is between the two; the smaller one comes first")
        return ranks

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the rollouts of the best conversations."""
        best = [max(map(value_of, group)) if len(group) else float("-inf") for group in groups]
        order = sorted(range(len(groups)), key=lambda i: -best[i])
        first, last = (int(share * len(groups) + 1e-9) for share in self.ranks)
        ranked = set(order[first : max(last, first + 1)])
        kept, dropped = list[Group](), list[Dropped]()
        for i, group in enumerate(groups):
            number = _conversation(max(group, key=value_of)) if i in ranked and best[i] >= self.least else None
            own = tuple(t for t in group if _conversation(t) == number)
            rest = tuple(t for t in group if _conversation(t) != number)
            if own:
                kept.append(replace(group, trajectories=own, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                bound = f"below {self.least:g}" if i in ranked else "not within the ranks"
                reason = "not the best conversation of the task" if own else f"the best of the task is {bound}"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped


def _conversation(trajectory: Trajectory) -> tuple[str, int]:
    """Which conversation a rollout belongs to."""
    fact = trajectory.fact(Exchange)
    return ("sample", trajectory.sample) if fact is None else ("exchange", fact.exchange)
