"""Tasks with pairs of their user, from which a personal reward model infers what the user likes.

Source: VPL, arXiv:2408.10075. Each task of the source has a field ``user``, and some have a preference. The field
``context`` of a task gets up to `pairs` pairs of the same user, drawn from the other tasks; a user without any has
none.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen, nearest
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import question_of
from posttrain.datasets.users import CONTEXT, shown_as
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Personal(Tasks):
    """Other tasks, each with pairs of its user."""

    tasks: Tasks
    """The source, with the field ``user``."""
    pairs: Annotated[int, Field(ge=0, le=256)] = 8
    """Most pairs of a task; 0 shows none, so that all users are the same."""
    fewest: Annotated[int, Field(ge=0, le=256)] | None = None
    """The number of pairs is drawn from this to `pairs` for each task; None has no fewer."""
    seed: NonNegativeInt = 0
    """Which pairs are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks of the source. Raises `UserError` for one without a user, and without any pair."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what is shown."""
        empty = sum(not task.fields[CONTEXT] for task in self._loaded)
        shown = f"up to {self.pairs} pairs of its user with each task"
        return f"{self.tasks.describe()}\n{shown}" + (f"; {empty:,} tasks have none" if empty else "")

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        tasks = self.tasks.load()
        if not any(task.preferences for task in tasks):
            raise UserError(
                f"no task of kind '{self.tasks.kind}' has a preference of a user; give columns user, chosen and "
                "rejected"
            )
        known: dict[str, list[tuple[str, dict[str, str]]]] = {}
        for task in tasks:
            rows = known.setdefault(_user(task), [])
            rows += [
                (task.key, {"prompt": question_of(shown_as(task)), "chosen": p.chosen, "rejected": p.rejected})
                for p in task.preferences
            ]
        return [replace(task, fields={**task.fields, CONTEXT: self._drawn(task, known[_user(task)])}) for task in tasks]

    def _drawn(self, task: Task, known: Sequence[tuple[str, dict[str, str]]]) -> list[dict[str, str]]:
        """Pairs of the user from other tasks."""
        rng = Random(f"personal:{self.seed}:{task.key}")
        count = self.pairs if self.fewest is None else rng.randint(min(self.fewest, self.pairs), self.pairs)
        others = [row for key, row in known if key != task.key]
        return rng.sample(others, min(count, len(others)))


def _user(task: Task) -> str:
    user: Any = task.fields.get("user")
    if isinstance(user, str | int) and not isinstance(user, bool) and user != "":
        return str(user)
    raise UserError(
        f"task {task.key}: user is {user!r:.60}, where a name or a number is needed; "
        f"{nearest('user', [*task.fields])}; give each row a column user"
    )
