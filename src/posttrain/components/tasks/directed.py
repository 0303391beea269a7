r"""Other tasks under a direction: how much two attributes of an answer count is stated before each prompt.

Source: Directional Preference Alignment, Wang et al. 2024, arXiv:2402.18571 (Haoxiang-Wang/
directional-preference-alignment at fdb7e0e): a direction is the unit vector v = (cos a, sin a) with a drawn uniformly
within `span` degrees of 0, and is stated in the system message as whole numbers, round(100 v): -15 degrees are 97 and
-26, whose norm is 1.004. The exact v is the field ``direction``.

Prompts that are text get ``97 -26\n`` before them, chats `request` as their system message, before their own.

Differs: nothing known of the release, which has no code for training; that a is uniform within 45 degrees was not
verified.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import fill
from posttrain.types import Message, Task

REQUEST: Final = "Give the answer with the largest rating = {first} * helpfulness + {second} * verbosity."
Degrees = Annotated[float, Field(ge=-180.0, le=180.0)]


@frozen
class Directed(Tasks):
    """States a direction before every prompt."""

    tasks: Tasks
    """The source of the tasks."""
    span: Annotated[float, Field(ge=0.0, le=180.0)] = 45.0
    """Largest angle that is drawn, in degrees, either way."""
    angles: tuple[Degrees, ...] = ()
    """Angles that tasks have in turns, in place of drawn ones."""
    seed: NonNegativeInt = 0
    """Which angles are drawn."""
    stated: bool = True
    """Whether prompts have the direction; without it a model cannot follow it."""
    request: str = REQUEST
    """System message of a chat. Placeholders: first, second (whole numbers)."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and its angles."""
        angles = ", ".join(f"{a:g}" for a in self.angles) or f"-{self.span:g} to {self.span:g}"
        return f"{self.tasks.describe()}\nunder directions of {angles} degrees{'' if self.stated else ', not stated'}"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [self._directed(number, task) for number, task in enumerate(self.tasks.load())]

    def _directed(self, number: int, task: Task) -> Task:
        drawn = Random(f"directed:{self.seed}:{task.key}").uniform(-self.span, self.span)
        degrees = self.angles[number % len(self.angles)] if self.angles else drawn
        direction = (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
        first, second = (str(round(100 * v)) for v in direction)
        own = replace(task, fields={**task.fields, "direction": list(direction)})
        if not self.stated:
            return own
        if isinstance(task.prompt, str):
            return replace(own, prompt=f"{first} {second}\n{task.prompt}")
        system = Message(role="system", content=fill(self.request, {"first": first, "second": second}))
        return replace(own, prompt=(system, *task.prompt))
