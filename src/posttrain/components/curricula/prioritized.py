"""Draws tasks with probability proportional to the policy's failure rate.

Source: Kimi k1.5, arXiv:2501.12599, section 2.3.4 (prioritised sampling): a task with the success rate s is
drawn with probability proportional to 1 - s. Its curriculum (section 3.5) is a phase on all tasks, then one on hard
tasks only, from iteration 24 in the report's figure: `hard_from`.

A task that was never drawn counts as never solved. One that was always solved has weight 0; where all have, all are
equally likely. Tasks that cannot be solved keep their full weight, and are drawn more often as the policy solves the
others: they should not be among the tasks.

Differs: the paper defines neither how success is tracked nor what is hard. Here success is a running mean over a task's
steps (`rate`). Draws are independent, so that a step may have a task twice.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._draws import Places, Reals, remember
from posttrain.components.curricula._success import scored_of, success_of
from posttrain.types import Group, Task

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Prioritized(Curriculum):
    """Draws tasks in proportion to one minus their success rate."""

    rate: Share = 0.5
    """Share of a task's newest step in its success rate, in (0, 1]; at 1 only the newest counts. The first step counts
    in full."""

    hard_from: PositiveInt | None = None
    """Number of steps after which hard tasks only are drawn; None always draws from all. Where no task is hard, all
    are."""
    hard: Share = 0.5
    """A task is hard with a success rate of at most this; one that was never drawn is."""

    @property
    def remembers_tasks(self) -> bool:
        """True."""
        return True

    def start(self) -> State:
        """State before the first step: no task drawn."""
        return {"asked": {}}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw each task independently, with replacement."""
        known_P = state["success"] if "success" in state else np.full(len(pool), np.nan)
        success_P = np.nan_to_num(known_P, nan=0.0)
        failure_P = np.maximum(1.0 - success_P, 0.0)
        if self.hard_from is not None and step >= self.hard_from and (success_P <= self.hard).any():
            failure_P[success_P > self.hard] = 0.0
        total = failure_P.sum()
        share_P = failure_P / total if total > 0 else np.full(len(pool), 1.0 / len(pool))
        rng = np.random.default_rng([seed, step, *[refill] * (refill > 0)])
        places = _drawn(share_P, count, rng) if total > 0 else rng.integers(len(pool), size=count)
        asked = remember(state["asked"], pool, places)
        picks = [Pick(task=pool[i], weight=float(share_P[i])) for i in places.tolist()]
        return {"success": known_P, "asked": asked}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Update the success rates of the step's tasks. Rollouts whose scoring failed do not count."""
        success_P = state["success"].copy()
        for key, rollouts in scored_of(groups).items():
            place = state["asked"].get(key)
            if place is None:
                continue
            newest = success_of(rollouts, "solved")
            before = newest if np.isnan(success_P[place]) else success_P[place]
            success_P[place] = (1.0 - self.rate) * before + self.rate * newest
        return {"success": success_P, "asked": {}}


def _drawn(share_P: Reals, count: int, rng: np.random.Generator) -> Places:
    """Places that are drawn by share, with replacement: the draws of `rng.choice`, without its check of every share."""
    until_P = share_P.cumsum()
    until_P /= until_P[-1]
    return np.asarray(until_P.searchsorted(rng.random(count), side="right"), np.int64)
