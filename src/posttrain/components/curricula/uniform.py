"""Every task once per epoch, in a new random order each time.

Source: random reshuffling, as in Gurbuzbalaban, Ozdaglar and Parrilo 2015, arXiv:1510.08560. The order of an epoch is
a function of the seed and the epoch's number, so the only memory is how many tasks have been handed out. A step may
end one epoch and begin the next, and holds a task twice when the pool is smaller than the step.
"""

from collections.abc import Sequence

import numpy as np

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, State
from posttrain.types import Task


@frozen
class Uniform(Curriculum):
    """Shuffled epochs without replacement."""

    def start(self) -> State:
        """Nothing handed out yet."""
        return {"position": 0}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int
    ) -> tuple[State, list[Task]]:
        """Hand out the next `count` tasks."""
        end = state["position"] + count
        chosen: list[Task] = []
        for epoch in range(state["position"] // len(pool), -(-end // len(pool))):
            order = np.random.default_rng([seed, epoch]).permutation(len(pool))
            begin = epoch * len(pool)
            chosen += [pool[i] for i in order[max(state["position"] - begin, 0) : end - begin]]
        return {"position": end}, chosen
