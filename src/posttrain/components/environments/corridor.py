"""A corridor of cells in a row whose last cell must be reached: a few steps, one reward at the end.

The smallest environment in which rollouts pass through the same states, as methods need that compare turns in the same
state (GiGPO, Feng et al. 2025, arXiv:2505.10978). A task's field ``cells`` is the length of its corridor.
"""

from collections.abc import Mapping, Sequence

from pydantic import NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.errors import UserError
from posttrain.types import Task

MOVES: Mapping[str, int] = {"forward": 1, "stay": 0, "back": -1}
"""Cells moved by each action. There is a wall before the first cell."""


@frozen
class Corridor(Environment):
    """The state is the cell. Actions: ``forward``, ``stay``, ``back``, or a prefix of one of them (``f``). Anything
    else is invalid and changes nothing.
    """

    horizon: PositiveInt = 9
    """Number of actions after which the rollout ends."""
    invalid_penalty: NonNegativeFloat = 0.1
    """Subtracted from the reward of a turn without a valid action."""
    reward: float = 1.0
    """For reaching the last cell."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have the length of its corridor."""
        for task in tasks:
            if not _is_length(task.fields.get("cells")):
                raise UserError(
                    f"task {task.key} is no corridor: its field 'cells' is {task.fields.get('cells')!r}, and a whole "
                    "number of at least 2 is needed; take tasks of the kind 'corridor'"
                )

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A walk from the first cell. Nothing is random."""
        return Walk(self, int(task.fields["cells"]))


class Walk(Instance):
    """A walk through one corridor."""

    def __init__(self, rules: Corridor, cells: int) -> None:
        self._rules, self._cells = rules, cells
        self._cell, self._steps = 0, 0

    def begin(self) -> Observation:
        """The first cell."""
        return self._observation()

    async def step(self, action: str) -> Outcome:
        """Move."""
        text = action.strip().lower()
        move = next((move for word, move in MOVES.items() if text and word.startswith(text)), None)
        self._steps += 1
        self._cell = max(0, self._cell + (move or 0))
        return Outcome(
            observation=self._observation(),
            reward=0.0 if move is not None else -self._rules.invalid_penalty,
            done=self._done or self._steps == self._rules.horizon,
            valid=move is not None,
        )

    def verdict(self) -> Verdict:
        """Whether the last cell was reached."""
        explanation = f"cell {self._cell + 1} of {self._cells} after {self._steps} actions"
        return Verdict(value=self._rules.reward if self._done else 0.0, solved=self._done, explanation=explanation)

    @property
    def _done(self) -> bool:
        return self._cell >= self._cells - 1

    def _observation(self) -> Observation:
        return Observation(text=f"At {self._cell + 1}.", state_key=str(self._cell))


def _is_length(cells: object) -> bool:
    return isinstance(cells, int) and not isinstance(cells, bool) and cells >= 2
