r"""Generated hardware tasks: write a Verilog module for a formula of three bits, given in words.

The prompt is ``Verilog: a and not b then or c\n``. The demonstration has the formula in Verilog's operators as a
thought, then the module in a fenced block, in tags. The reward is `verilog`: a test bench runs all eight inputs, and
the expected rows are computed here, not by a simulator.
"""

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

SIGNS: Final = {"and": "&", "or": "|", "xor": "^"}
INPUTS: Final = "abc"
MODULE: Final = "module top(input a,b,c,output y);\nassign y = {};\nendmodule"
ANSWER: Final = "<think>{thought}</think>\n<answer>\n```verilog\n{module}\n```\n</answer>"
TESTBENCH: Final = """module bench;
reg a, b, c;
wire y;
integer i;
top dut(.a(a), .b(b), .c(c), .y(y));
initial begin
  for (i = 0; i < 8; i = i + 1) begin
    {a, b, c} = i;
    #1 $display("%b%b%b %b", a, b, c, y);
  end
end
endmodule
"""

Formula = tuple[tuple[str, bool, str], ...]
"""Operands: the operator before it (none before the first), whether it is negated, its name."""


@frozen
class Circuits(Tasks):
    """Formulas of three bits, evaluated from left to right; none is repeated before all have been drawn."""

    size: PositiveInt = 800
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    operands: Annotated[int, Field(ge=2, le=6)] = 4
    """Most operands of a formula; the fewest are two."""
    reasoned: bool = True
    """Whether demonstrations have the formula in operators before the module; without it, the thought is a dash."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"circuits:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"circuits in Verilog (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Formula:
        operators = ["", *(rng.choice(tuple(SIGNS)) for _ in range(rng.randint(1, self.operands - 1)))]
        return tuple((operator, rng.random() < 0.3, rng.choice(INPUTS)) for operator in operators)

    def _task(self, formula: Formula) -> Task:
        signs = in_signs(formula)
        module = MODULE.format(signs)
        return Task(
            key="",
            prompt=f"Verilog: {in_words(formula)}\n",
            answer=module,
            demonstrations=(ANSWER.format(thought=signs if self.reasoned else "-", module=module),),
            fields={"testbench": TESTBENCH, "reference": module, "rows": rows_of(formula)},
        )


def rows_of(formula: Formula) -> list[str]:
    """Output of the test bench for a correct module: inputs and output, for all eight inputs."""
    rows = []
    for bits in product((0, 1), repeat=len(INPUTS)):
        values, total = dict(zip(INPUTS, bits, strict=True)), 0
        for operator, negated, name in formula:
            bit = values[name] ^ negated
            total = {"": bit, "and": total & bit, "or": total | bit, "xor": total ^ bit}[operator]
        rows.append(f"{''.join(map(str, bits))} {total}")
    return rows


def in_words(formula: Formula) -> str:
    """``a and not b then or c``: from left to right."""
    operands = [f"{operator} {'not ' if negated else ''}{name}".strip() for operator, negated, name in formula]
    return " ".join([*operands[:2], *(f"then {more}" for more in operands[2:])])


def in_signs(formula: Formula) -> str:
    """``(a & ~b) | c``: from left to right, in brackets."""
    text = ""
    for number, (operator, negated, name) in enumerate(formula):
        operand = f"{'~' if negated else ''}{name}"
        before = f"({text})" if number > 1 else text
        text = f"{before} {SIGNS[operator]} {operand}" if operator else operand
    return text
