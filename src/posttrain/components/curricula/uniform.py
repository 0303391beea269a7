"""Every task once per epoch, in a new random order each time.

Source: random reshuffling, as in Gurbuzbalaban, Ozdaglar and Parrilo 2015, arXiv:1510.08560. The order of an epoch is
a function of the seed and the epoch's number, so the only state is the number of tasks drawn so far. A step may end one
epoch and start the next. It has a task twice when the pool is smaller than the step.
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._draws import shuffled_epochs
from posttrain.types import Task


@frozen
class Uniform(Curriculum):
    """Shuffled epochs without replacement."""

    def start(self) -> State:
        """State before the first step: no task drawn."""
        return {"position": 0}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the next `count` tasks."""
        places = shuffled_epochs(len(pool), state["position"], count, [seed])
        return {"position": state["position"] + count}, [Pick(task=pool[i]) for i in places.tolist()]
