"""Other tasks with strengths of controllers, which the field ``eps`` gives to a model with controllers.

Source: LDC, arXiv:2412.14626; the draws are of this package (`posttrain.policies.controllers`).

    one      1 for one dimension, which is the domain, and 0 for the others
    signed   the same, 1 or -1
    joint    uniform from -1 to 1 in each dimension
    rows     those of `rows`, one for each sentence
    planned  none: the model's network gives them
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.types import Task

Strength = Annotated[float, Field(ge=-1.0, le=1.0)]


@frozen
class Steered(Tasks):
    """Tasks with strengths."""

    tasks: Tasks
    """The source."""
    dimensions: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] = (
        "novelty",
        "feasibility",
        "effectiveness",
    )
    """Names of the controllers, in their order."""
    draw: Literal["one", "signed", "joint", "rows", "planned"] = "one"
    """Which strengths."""
    rows: Annotated[tuple[tuple[Strength, ...], ...], Field(max_length=1024)] = ()
    """Of ``draw: rows``: for each sentence, one number for each dimension."""
    seed: NonNegativeInt = 0
    """Of the draws."""

    @model_validator(mode="after")
    def check_rows(self) -> Self:
        """Require rows where they are drawn from, each as long as there are dimensions, and nowhere else."""
        if bool(self.rows) != (self.draw == "rows"):
            raise PydanticCustomError("rows", "rows are the strengths of draw: rows; give both or neither")
        if any(len(row) != len(self.dimensions) for row in self.rows):
            raise PydanticCustomError("rows", "each row has one number for each dimension")
        return self

    def load(self) -> Sequence[Task]:
        """The tasks of the source, in their order."""
        return [self._task(task) for task in self.tasks.load()]

    def describe(self) -> str:
        """The description of the source, and the kind of strengths."""
        return f"{self.tasks.describe()}\nstrengths of {', '.join(self.dimensions)}: {self.draw}"

    def place(self, key: str) -> str:
        """Those of the source."""
        return self.tasks.place(key)

    def _task(self, task: Task) -> Task:
        rng, count = Random(f"steered:{self.seed}:{task.key}"), len(self.dimensions)
        domain, eps = str(self.draw), list[float]()
        if self.draw in ("one", "signed"):
            which = rng.randrange(count)
            size = rng.choice((1.0, -1.0)) if self.draw == "signed" else 1.0
            domain, eps = self.dimensions[which], [size * (k == which) for k in range(count)]
        elif self.draw == "joint":
            eps = [rng.uniform(-1.0, 1.0) for _ in range(count)]
        found: Any = "planned" if self.draw == "planned" else [list(row) for row in self.rows] or [eps]
        return replace(task, domain=domain, fields={**task.fields, "eps": found})
