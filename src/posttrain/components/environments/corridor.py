"""A corridor of cells in a row, to be left by the last one: a few steps, one reward at the end.

The smallest world in which attempts pass through the same states, as methods that compare turns in the same state need
it (GiGPO, Feng et al. 2025, arXiv:2505.10978). A task's field ``cells`` says how long its corridor is.
"""

from collections.abc import Mapping, Sequence

from pydantic import NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Observation, Outcome, Verdict, World
from posttrain.errors import UserError
from posttrain.types import Task

MOVES: Mapping[str, int] = {"forward": 1, "stay": 0, "back": -1}
"""By action, cells onwards; before the first cell is a wall."""


@frozen
class Corridor(Environment):
    """The state is the cell. Actions: ``forward``, ``stay``, ``back``, or how one of them begins (``f``); anything else
    is invalid and changes nothing.
    """

    horizon: PositiveInt = 9
    """Actions after which the attempt is over."""
    invalid_penalty: NonNegativeFloat = 0.1
    """Taken from the reward of a turn without a valid action."""
    reward: float = 1.0
    """For reaching the last cell."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must say how long its corridor is."""
        for task in tasks:
            if not _is_length(task.fields.get("cells")):
                raise UserError(
                    f"task {task.key} is no corridor: its field 'cells' is {task.fields.get('cells')!r}, and a whole "
                    "number of at least 2 is needed; take tasks of the kind 'corridor'"
                )

    def world(self, task: Task, draw: Draw) -> World:
        """At the first cell. Nothing is left to chance."""
        return Walk(self, int(task.fields["cells"]))


class Walk(World):
    """One walk."""

    def __init__(self, rules: Corridor, cells: int) -> None:
        self._rules, self._cells = rules, cells
        self._cell, self._steps = 0, 0

    def begin(self) -> Observation:
        """The first cell."""
        return self._observation()

    async def step(self, action: str) -> Outcome:
        """Walk."""
        said = action.strip().lower()
        move = next((move for word, move in MOVES.items() if said and word.startswith(said)), None)
        self._steps += 1
        self._cell = max(0, self._cell + (move or 0))
        return Outcome(
            observation=self._observation(),
            reward=0.0 if move is not None else -self._rules.invalid_penalty,
            done=self._out or self._steps == self._rules.horizon,
            valid=move is not None,
        )

    def verdict(self) -> Verdict:
        """Whether the last cell was reached."""
        explanation = f"cell {self._cell + 1} of {self._cells} after {self._steps} actions"
        return Verdict(value=self._rules.reward if self._out else 0.0, solved=self._out, explanation=explanation)

    @property
    def _out(self) -> bool:
        return self._cell >= self._cells - 1

    def _observation(self) -> Observation:
        return Observation(text=f"At {self._cell + 1}.", state_key=str(self._cell))


def _is_length(cells: object) -> bool:
    return isinstance(cells, int) and not isinstance(cells, bool) and cells >= 2
