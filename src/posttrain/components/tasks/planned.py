r"""Tasks in words for a chain of typed tools, each with inputs and the results that are wanted.

The prompt ``Take a text, keep its vowels, find its length. Goal: number\nPlan:`` has the demonstration
`` vowels > count``. Chains are of the tools of `posttrain.datasets.tool_chains`; a plan is scored by what it gives.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.tool_chains import TOOLS, carried_out, chains, plan_of
from posttrain.types import Task

WORDS: Final = ("banana", "Copper", "violin", "Eagle", "mountain", "river", "Oxide", "lantern", "ivory", "Quartz")


@frozen
class Planned(Tasks):
    """Chains in a drawn order; none is repeated."""

    size: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Number of tasks, or of all chains if that is less."""
    seed: NonNegativeInt = 0
    """The order of the chains."""
    most: Annotated[int, Field(ge=1, le=8)] = 4
    """Most tools of a chain."""
    inputs: Annotated[int, Field(ge=1, le=10)] = 3
    """Inputs of a task."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        found = chains(self.most)
        Random(f"planned:{self.seed}").shuffle(found)
        return keyed(self._task(names) for names in found[: self.size])

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"plans of up to {self.most} of {len(TOOLS)} typed tools (seed {self.seed})", self.load())

    def _task(self, names: Sequence[str]) -> Task:
        given = Random(f"planned inputs:{names}").sample(WORDS, self.inputs)
        goal = TOOLS[names[-1]].gives
        steps = ", ".join(TOOLS[name].phrase for name in names)
        return Task(
            key="",
            prompt=f"Take a text, {steps}. Goal: {goal}\nPlan:",
            answer=plan_of(names).strip(),
            domain=f"{len(names)} tools" if len(names) > 1 else "1 tool",
            demonstrations=(plan_of(names),),
            fields={"inputs": given, "outputs": [carried_out(names, word) for word in given], "goal": goal},
        )
