"""Test benches for Verilog: what one prints for a module, and modules with a fault that a good one notices."""

import re
from dataclasses import dataclass
from typing import Final

from posttrain.grading.programs import encoded, how_it_ended
from posttrain.sandbox import Job, Limits, Tier, open_pool

BUILD: Final = "iverilog -g2012 -o simulation design.v bench.v"
_ASSIGN: Final = re.compile(r"(\bassign\s+[^=;]+=)([^;]+);")
_OPERATOR: Final = re.compile(r"(?<=[\w)\s])[&|^+\-](?=[\s\w(~])")
SWAPPED: Final = {"&": "|", "|": "&", "^": "&", "+": "-", "-": "+"}
"""The operator that takes the place of another in a mutant."""


@dataclass(frozen=True)
class Printed:
    """What a simulation printed, or why it printed nothing."""

    rows: tuple[str, ...] = ()
    message: str = ""
    """The compiler's or the simulator's message; empty where rows were printed."""


async def simulated(design: str, bench: str, limits: Limits, weakest: Tier) -> Printed:
    """The rows that a bench prints for a design, without blank ones."""
    pool, files = open_pool(weakest), {"design.v": encoded(design), "bench.v": encoded(bench)}
    built = await pool.result(Job(command=("sh", "-c", f"{BUILD} >&2 && cat simulation"), files=files), limits)
    if built.outcome != "ok":
        text = built.stderr.decode("utf-8", errors="replace").strip()
        return Printed(message=text or how_it_ended(built))
    ran = await pool.result(Job(command=("vvp", "-n", "simulation"), files={"simulation": built.stdout}), limits)
    lines = [" ".join(line.split()) for line in ran.stdout.decode("utf-8", errors="replace").splitlines()]
    rows = tuple(line for line in lines if line)
    if ran.outcome != "ok":
        return Printed(message=how_it_ended(ran))
    return Printed(rows=rows) if rows else Printed(message="the bench prints no row; print one with $display for each "
                                                           "input that is checked")  # fmt: skip


def mutants(design: str, most: int) -> list[str]:
    """Copies of a module with one fault each: a negated output, or another operator. At most this many.

    A changed operator may be no fault, as in ``a & a``: such a mutant no bench can notice.
    """
    found = []
    for assign in _ASSIGN.finditer(design):
        found.append(f"{design[: assign.start()]}{assign[1]} ~({assign[2].strip()});{design[assign.end() :]}")
    for assign in _ASSIGN.finditer(design):
        for operator in _OPERATOR.finditer(design, assign.start(2), assign.end(2)):
            found.append(design[: operator.start()] + SWAPPED[operator[0]] + design[operator.end() :])
    return found[:most]
