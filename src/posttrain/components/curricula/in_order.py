"""Takes the tasks in their own order, from the first; after the last it begins again.

Source: the fixed order of queries of Qwen2.5, arXiv:2412.15115, which the selection ``by_spread`` makes. Any other
order of tasks that means something, such as by difficulty, is followed too.
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.types import Task


@frozen
class InOrder(Curriculum):
    """The next tasks of the pool."""

    def start(self) -> State:
        """State before the first step: no task taken."""
        return {"taken": 0}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the next `count` tasks."""
        taken = state["taken"]
        return {"taken": taken + count}, [Pick(task=pool[(taken + i) % len(pool)]) for i in range(count)]
