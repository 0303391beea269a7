"""States of the small control environment ``reaching``, each with a demonstrated action towards one of two targets.

The prompt is the observation, and the demonstration the action, as numbers (`posttrain.datasets.reaching`): data for
the flow matching of a flow that is conditioned on observations.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.chains import write_point
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.reaching import demonstrated
from posttrain.types import Task


@frozen
class Reaching(Tasks):
    """Pairs of state and action."""

    size: PositiveInt = 2000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which states are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"states and actions of the control task reaching (seed {self.seed})", self.load())

    def _task(self, index: int) -> Task:
        state, action = demonstrated(np.random.Generator(np.random.Philox(key=[self.seed, index])))
        return Task(key="", prompt=write_point(state), demonstrations=(write_point(action),))
