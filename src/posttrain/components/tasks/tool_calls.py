r"""Generated requests that are answered by function calls: which of sixteen functions is right is to be found out.

The prompt names things with numbers, ``Q: gold 4, iron 7\nA:``; the answer calls a function for each, ``k(n=4);
c(n=7)`` on lines of their own, and calls may be in any order. Which function belongs to which thing is a table that the
prompt does not have. A demonstration has the format and the right numbers, but random functions and a thought of random
letters: ``<think>qhbe</think><call>d(n=4)</call>``. So imitation teaches the format, and only rewards teach the table.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

THINGS: Final = (
    *("gold", "iron", "milk", "rice", "salt", "wood", "sand", "corn"),
    *("wool", "fish", "tea", "oil", "ink", "jam", "ham", "nut"),
)
FUNCTIONS: Final = "abcdefghijklmnop"
Count = Annotated[int, Field(ge=1, le=4)]


@frozen
class ToolCalls(Tasks):
    """Requests for one or several calls."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn, and which function belongs to which thing."""
    calls: Annotated[tuple[Count, Count], Ordered] = (1, 2)
    """Fewest and most calls of a request, every count equally likely."""
    thought: Annotated[int, Field(ge=1, le=64)] = 4
    """Letters of the thought in a demonstration."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"tool_calls:{self.seed}")))

    def describe(self) -> str:
        """Number of calls, number of tasks and an example."""
        return describe(f"requests for {self.calls[0]} to {self.calls[1]} calls (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[tuple[str, int], ...]:
        things = rng.sample(THINGS, rng.randint(*self.calls))
        return tuple((thing, rng.randrange(100)) for thing in things)

    def _task(self, drawn: tuple[tuple[str, int], ...]) -> Task:
        table = dict(zip(THINGS, Random(f"table:{self.seed}").sample(FUNCTIONS, len(THINGS)), strict=True))
        rng = Random(f"{self.seed}:{drawn}")
        guessed = "\n".join(f"{rng.choice(FUNCTIONS)}(n={number})" for _, number in drawn)
        thought = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(self.thought))
        return Task(
            key="",
            prompt=f"Q: {', '.join(f'{thing} {number}' for thing, number in drawn)}\nA:",
            answer="\n".join(f"{table[thing]}(n={number})" for thing, number in drawn),
            domain=f"{len(drawn)} calls" if len(drawn) > 1 else "1 call",
            demonstrations=(f"<think>{thought}</think><call>{guessed}</call>",),
            fields={"tools": [{"name": name, "required": ["n"], "optional": []} for name in FUNCTIONS]},
        )
