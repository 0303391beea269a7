r"""Other tasks, whose demonstrations have tagged steps, some of them with a slip that is noticed and repaired.

`` 47+35=82; 82-8=74\n#### 74`` becomes, in one line,

    <step>47+35=82</step><step>82-8=73</step><check>no</check><fix>82-8=74</fix><answer>74</answer>

Right steps are checked now and then: ``<check>ok</check>``. Steps are the parts between semicolons before ``####``; a
slip changes the last digit of a step that ends in one. `GRAMMAR` states which kinds of steps may follow which.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.grammars import Grammar
from posttrain.errors import UserError
from posttrain.types import Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]

GRAMMAR: Final = Grammar(
    first=("step",),
    after={
        "step": ("step", "check", "answer"),
        "check": ("step", "fix", "answer"),
        "fix": ("step", "check", "answer"),
    },
    depth=16,
)
"""Steps, checks of the step before, repairs of a step that was found wrong, and the answer."""


@frozen
class TaggedSteps(Tasks):
    """Puts every step of a demonstration into tags, and adds checks and slips."""

    tasks: Tasks
    """The source of the tasks; its demonstrations end in ``#### `` and the answer."""
    slips: Share = 0.2
    """Share of the demonstrations in which one step is wrong at first."""
    checks: Share = 0.2
    """Share of the right steps that are checked."""
    seed: NonNegativeInt = 0
    """Which steps slip or are checked."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a demonstration without steps and answer."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and the form of its demonstrations."""
        return (
            f"{self.tasks.describe()}\nevery demonstration has tagged steps, {self.slips:.0%} of them with a slip that "
            "is repaired"
        )

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [
            replace(task, demonstrations=tuple(self._tagged(task, i) for i in range(len(task.demonstrations))))
            for task in self.tasks.load()
        ]

    def _tagged(self, task: Task, number: int) -> str:
        working, mark, answer = task.demonstrations[number].rpartition("####")
        steps = [step.strip() for step in working.split(";") if step.strip()]
        if not mark or not answer.strip() or not steps:
            raise UserError(
                f"task {task.key}: its demonstration has no steps with '#### answer' after them; write the steps apart "
                "by semicolons: 47+35=82; 82-8=74 #### 74"
            )
        rng = Random(f"tagged_steps:{self.seed}:{task.key}:{number}")
        slipping = [i for i, step in enumerate(steps) if step[-1].isdecimal()]
        slip = rng.choice(slipping) if slipping and rng.random() < self.slips else None
        written = []
        for i, step in enumerate(steps):
            if i == slip:
                wrong = f"{step[:-1]}{(int(step[-1]) + rng.randint(1, 9)) % 10}"
                written += [f"<step>{wrong}</step>", "<check>no</check>", f"<fix>{step}</fix>"]
                continue
            written.append(f"<step>{step}</step>")
            if rng.random() < self.checks:
                written.append("<check>ok</check>")
        return "".join(written) + f"<answer>{answer.strip()}</answer>"
