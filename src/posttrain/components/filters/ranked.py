"""Keeps the rollouts with the highest rewards: the best of each group, or of the whole step.

Source: RAFT, Dong et al. 2023, arXiv:2304.06767, section 3 (algorithm 1: the best of K); both rankings are in the
authors' code (github.com/OptimalScale/LMFlow, ``top`` and ``local``).

Differs: where the released ranking of the whole step takes one rollout of each of many prompts, this ranks all that
the step sampled.
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
    """Keeps a share of the rollouts, the best by reward. Of equal rewards the first is taken."""

    rank: Literal["local", "global"] = "local"
    """Which rollouts are ranked together: ``local``, those of each group, or ``global``, all of the step."""
    keep: Share = 0.125
    """Share of them that is kept, rounded down, and at least one (1/8: the authors' script)."""
    at_least: float | None = None
    """Rollouts with a lower reward are never kept. None keeps the best, however low their reward."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the rollouts with the highest rewards."""
        rewards = [group.rewards for group in groups]
        bounds = np.cumsum([0, *map(len, groups)])
        if self.rank == "local":
            chosen = [start + self._best(own) for start, own in zip(bounds, rewards, strict=False)]
        else:
            chosen = [self._best(np.concatenate(rewards))] if groups else []
        places = {int(i) for part in chosen for i in part}
        kept, dropped = [], []
        for start, group in zip(bounds, groups, strict=False):
            best = tuple(t for i, t in enumerate(group) if start + i in places)
            rest = tuple(t for i, t in enumerate(group) if start + i not in places)
            if best:
                kept.append(replace(group, trajectories=best, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                reason = f"not among the best {self.keep:g} ({self.rank})"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped

    def _best(self, rewards: np.ndarray) -> IntArray:
        """Indices of the highest rewards that are at least `at_least`."""
        count = max(1, int(self.keep * len(rewards) + 1e-9))
        order = np.argsort(-rewards, kind="stable")[:count]
        return order if self.at_least is None else order[rewards[order] >= self.at_least]
