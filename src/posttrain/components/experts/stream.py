"""A fixed number of demonstrations in every step, in a seeded order without end.

Source: the stream of expert rows of CHORD, Zhang et al. 2025, arXiv:2508.11408: each step has a batch of rollouts and,
independent of its prompts, a batch of demonstrations (64 beside 256 rollouts).

The order is a new shuffle in each epoch, as in the sft stage; the state is the number of batches taken so far.
"""

from collections.abc import Sequence

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.experts import Experts, Shown, State
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.types import Group, Task


@frozen
class Stream(Experts):
    """The next `batch` demonstrations."""

    tasks: Tasks | None = None
    """Where the demonstrations are from; None takes the tasks of the stage."""
    batch: PositiveInt = 32
    """Demonstrations per step (64 in the paper, a fifth of all rows)."""

    @property
    def source(self) -> Tasks | None:
        """The setting `tasks`."""
        return self.tasks

    def start(self) -> State:
        """State before the first step: no batch taken."""
        return {"batches": 0}

    def choose(
        self, state: State, pool: Sequence[Task], groups: Sequence[Group], *, seed: int
    ) -> tuple[State, list[Shown]]:
        """Take the next ones; a task with several demonstrations counts once for each."""
        shown = [(task, text) for task in pool for text in task.demonstrations]
        if not shown:
            return state, []
        places = shuffled(len(shown), self.batch, state["batches"], seed)
        return {"batches": state["batches"] + 1}, [shown[place] for place in places]
