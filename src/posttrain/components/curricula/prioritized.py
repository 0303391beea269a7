"""Tasks are drawn the more often the more often the policy fails at them.

Source: Kimi k1.5, arXiv:2501.12599, section 2.3.4 (prioritised sampling): a task whose share of right attempts is s is
drawn with probability proportional to 1 - s.

A task that was never drawn counts as never solved. One that was always solved has no weight; where that is so for all
tasks, all are equally likely. Tasks that cannot be solved keep their full weight for ever, and are drawn the more the
better the policy is at the others: they should not be among the tasks.

Differs: the paper does not say how success is tracked; here it is a running mean of a task's visits (`rate`). Draws are
independent of each other, so that a step may hold a task twice.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, State
from posttrain.types import Group, Task

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Prioritized(Curriculum):
    """Draws in proportion to one minus the success rate."""

    rate: Share = 0.5
    """Share of a task's newest visit in its success rate, in (0, 1]; at 1 only the newest counts. The first visit
    counts in full."""

    def start(self) -> State:
        """Nothing tried yet."""
        return {"success": {}}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int
    ) -> tuple[State, list[Task]]:
        """Draw each place by itself, with replacement."""
        failure_P = np.array([max(1.0 - state["success"].get(task.key, 0.0), 0.0) for task in pool])
        total = failure_P.sum()
        share_P = failure_P / total if total > 0 else None
        drawn = np.random.default_rng([seed, step]).choice(len(pool), size=count, p=share_P)
        return state, [pool[int(place)] for place in drawn]

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Renew the success of the tasks that were tried; attempts whose judgement failed do not count."""
        visits: dict[str, list[bool]] = defaultdict(list)
        for group in groups:
            for trajectory in group:
                if trajectory.score is not None and trajectory.score.status != "error":
                    visits[trajectory.task.key].append(trajectory.solved)
        success = dict(state["success"])
        for key, solved in visits.items():
            newest = sum(solved) / len(solved)
            before = success.get(key, newest)
            success[key] = (1.0 - self.rate) * before + self.rate * newest
        return {"success": success}
