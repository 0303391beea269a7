"""What a node learns from: some groups of its own, and some that others shared.

Source: SAPO, arXiv:2509.08721: I groups of its own, and J of the others', after those of advantage zero are discarded,
drawn uniformly. Its demonstration (gensyn-ai/genrl, examples/rgym/data.py) takes the J with the highest sum of rewards,
without those of sum zero. Groups of its own are not discarded: all equal, they have no advantage, and their tokens
still count in the mean of the loss.

Differs: the demonstration looks for the first sum above zero in an unsorted list and cuts the sorted one there, so that
it may keep what it means to drop; here it is what is meant. Where there are fewer, those are taken.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.components.rollouts import Shared
from posttrain.types import Group

EQUAL = 1e-6
"""Rewards within this distance of one another are equal, in units of reward."""


@frozen
class Exchange(Filter):
    """Keeps groups of each learner: its own, and others'."""

    own: Annotated[int, Field(ge=0, le=65536)] = 4
    """I: most groups that it wrote itself."""
    external: Annotated[int, Field(ge=0, le=65536)] = 4
    """J: most groups that others wrote."""
    rule: Literal["uniform", "top"] = "uniform"
    """Which of the others': those with an advantage, drawn uniformly; or those with the highest sum of rewards."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the groups of every learner, in order."""
        own, shared = dict[str, list[int]](), dict[str, list[int]]()
        for place, group in enumerate(groups):
            first = group.trajectories[0]
            kind = own if first.fact(Shared) is None else shared
            kind.setdefault(" ".join(sorted(first.learners)), []).append(place)
        kept = {place for places in own.values() for place in places[: self.own]}
        for places in shared.values():
            kept.update(self._chosen([(place, groups[place]) for place in places]))
        dropped = [
            Dropped(group=group, reason=self._reason(group)) for place, group in enumerate(groups) if place not in kept
        ]
        return state, [group for place, group in enumerate(groups) if place in kept], dropped

    def _chosen(self, shared: Sequence[tuple[int, Group]]) -> list[int]:
        """Places of the groups that are taken."""
        if self.rule == "uniform":
            varied = [(place, group) for place, group in shared if np.ptp(group.rewards) > EQUAL]
            order = sorted(varied, key=lambda item: (_draw(item[1]), item[0]))
        else:
            rewarded = [(place, group) for place, group in shared if float(group.rewards.sum()) > 0.0]
            order = sorted(rewarded, key=lambda item: (-float(item[1].rewards.sum()), item[0]))
        return [place for place, _ in order[: self.external]]

    def _reason(self, group: Group) -> str:
        if group.trajectories[0].fact(Shared) is None:
            return f"beyond {self.own} groups of its own"
        return "shared by another node, and not taken"


def _draw(group: Group) -> float:
    fact = group.trajectories[0].fact(Shared)
    return fact.draw if fact is not None else 0.0
