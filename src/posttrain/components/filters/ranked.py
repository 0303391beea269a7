"""Keep the attempts with the highest rewards: the best of each group, or of the whole step.

Source: RAFT, Dong et al. 2023, arXiv:2304.06767, section 3 (algorithm 1: the best of K); both rankings are in the
authors' code (github.com/OptimalScale/LMFlow, ``top`` and ``local``).

Differs: where the released ranking of the whole step takes one attempt of each of many prompts, this takes whatever the
rollout sampled.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group, IntArray

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Ranked(Filter):
    """Of equal rewards the first attempt is taken."""

    rank: Literal["local", "global"] = "local"
    """Among which attempts: those of each ``local`` group, or ``global``, all of the step."""
    keep: Share = 0.125
    """Share of them that is kept, rounded down, and at least one (1/8: the authors' script)."""
    at_least: float | None = None
    """Attempts with a lower reward are never kept; None keeps the best, however bad they are."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the highest."""
        rewards = [group.rewards for group in groups]
        bounds = np.cumsum([0, *map(len, groups)])
        if self.rank == "local":
            chosen = [begin + self._best(own) for begin, own in zip(bounds, rewards, strict=False)]
        else:
            chosen = [self._best(np.concatenate(rewards))] if groups else []
        places = {int(i) for part in chosen for i in part}
        kept, dropped = [], []
        for begin, group in zip(bounds, groups, strict=False):
            best = tuple(t for i, t in enumerate(group) if begin + i in places)
            rest = tuple(t for i, t in enumerate(group) if begin + i not in places)
            if best:
                kept.append(replace(group, trajectories=best, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                reason = f"not among the best {self.keep:g} ({self.rank})"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped

    def _best(self, rewards: np.ndarray) -> IntArray:
        """Indices of the highest rewards that are high enough."""
        count = max(1, int(self.keep * len(rewards) + 1e-9))
        order = np.argsort(-rewards, kind="stable")[:count]
        return order if self.at_least is None else order[rewards[order] >= self.at_least]
