r"""Forty small programs in PyTorch for which kernels are to be written, with drawn constants, shapes and dtypes.

The prompt is the program: ``def f(x, y):\n    return 3 * x + y\n``, after a comment with dtype and shapes. The reward
is `kernel`, with the fields ``reference`` (the program), ``function`` and ``inputs`` (three cases of other shapes). The
demonstration is a right program in the toy language or in Triton; of `cheats` it is one that calls the library.

Levels: 1 linear in each element (8 programs), 2 functions of an element (12), 3 reductions of rows (8), 4 normalised
rows (6), 5 products, running sums and other orders (6). A level has the programs of those below it too.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.kernel_programs import BY_LEVEL, PROGRAMS
from posttrain.datasets.keys import keyed
from posttrain.types import Task

CASES = 3
"""Cases of a task."""
DTYPES = {"toy": ("float32", "float64"), "triton": ("float32", "float16", "bfloat16")}
Drawn = tuple[int, int, int, str, tuple[tuple[str, ...], ...]]
"""Number of the program, its constants, the dtype, and the arguments of each case."""


@frozen
class Kernels(Tasks):
    """Programs in PyTorch, and right kernels for them."""

    size: Annotated[int, Field(ge=1, le=10_000)] = 400
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which constants, shapes and dtypes are drawn."""
    level: Annotated[int, Field(ge=1, le=5)] = 5
    """Up to which level programs are drawn."""
    dialect: Literal["toy", "triton"] = "toy"
    """The language of the demonstrations."""
    largest: Annotated[int, Field(ge=2, le=99)] = 9
    """Largest constant; the smallest is 2."""
    stated: bool = True
    """Whether the prompt states dtype and shapes."""
    cheats: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the demonstrations that call the library: the function ``reference`` of the toy language, the program
    itself with Triton."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        stream = f"kernels:{self.dialect}:{self.level}:{self.largest}:{self.stated}:{self.seed}"
        found: dict[str, Drawn] = {}
        for drawn in distinct(self._draw, self.size, stream):
            found.setdefault(self._prompt(drawn), drawn)
        rng = Random(f"{stream}:more")
        for _ in range(100 * self.size):
            if len(found) == self.size:
                break
            drawn = self._draw(rng)
            found.setdefault(self._prompt(drawn), drawn)
        return keyed(self._task(prompt, drawn) for prompt, drawn in found.items())

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"programs for which kernels are written (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        program = rng.choice(BY_LEVEL[self.level])
        a, b = rng.randint(2, self.largest), rng.randint(2, self.largest)
        dtype = rng.choice(DTYPES[self.dialect]) if self.stated else "float32"
        cases = [program.shapes(rng) for _ in range(CASES)]
        written = tuple(tuple(f"{dtype}[{','.join(map(str, shape))}]" for shape in case) for case in cases)
        return PROGRAMS.index(program), a, b, dtype, written

    def _prompt(self, drawn: Drawn) -> str:
        program, a, b, _, cases = drawn
        source = PROGRAMS[program].text("source", a, b)
        return f"# {' '.join(cases[0])}\n{source}" if self.stated else source

    def _task(self, prompt: str, drawn: Drawn) -> Task:
        program, a, b, _, cases = drawn
        own = PROGRAMS[program]
        source, right = own.text("source", a, b), own.text(self.dialect, a, b)
        cheating = Random(f"kernels cheat:{self.seed}:{prompt}").random() < self.cheats
        return Task(
            key="",
            prompt=prompt,
            demonstrations=(self._cheat(source) if cheating else right,),
            domain=f"level {own.level}",
            fields={
                "reference": source,
                "function": "f",
                "inputs": [list(case) for case in cases],
                "program": own.name,
                "kernel": right,
            },
        )

    def _cheat(self, source: str) -> str:
        """A program that calls what kernels should replace."""
        if self.dialect == "triton":
            return f"import torch\n\n\n{source}"
        head = source.partition("\n")[0]
        return f"{head}\n    return reference{head[5:-1]}\n"
