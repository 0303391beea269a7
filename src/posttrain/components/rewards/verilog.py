"""Verilog modules, simulated with a test bench by Icarus in a sandbox; the printed rows are compared outside of it.

A task has the fields ``testbench`` (prints one row per input vector with ``$display``), ``rows`` (the expected rows),
and, for the structure part, ``reference`` (a correct module). Source: the published code of VeriReason (Wang et al.
2025, arXiv:2505.11849): 0 for a module that does not compile, 0.1 plus up to 1 for its similarity to the reference for
one that compiles, 2.1 for one that passes. VeriPrefer (Wang et al. 2025, arXiv:2504.15804) ranks by the share of
correct rows: `partial`.

Differs: the expected rows never enter the sandbox. Missing and additional rows are wrong (in the published code a
design that prints one correct row and ends the simulation passes). A design that calls a system task counts as one that
does not compile, since it could print the rows itself. The extra 0.1 for think and answer tags is the reward `format`.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Annotated, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.errors import UserError
from posttrain.grading.benches import BUILD
from posttrain.grading.programs import broken, encoded, how_it_ended, score_each
from posttrain.sandbox import Job, Limits, Result, Tier, missing_programs, open_pool
from posttrain.types import Group, Score, Trajectory

MOST_STATEMENTS: Final = 500
_COMMENT: Final = re.compile(r"//[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/")
_MODULE: Final = re.compile(r"\bmodule\s+(\w+)")
_STATEMENT: Final = re.compile(r"[^;]+")
_CALL: Final = re.compile(r"\$(?![0-9])(\w*)")
HARMLESS: Final = frozenset({"bits", "clog2", "high", "low", "left", "right", "signed", "size", "unsigned"})
"""System functions without side effects, which a design may call. Others print, end the simulation or read files."""
_NUMBER: Final = re.compile(r"0x([0-9a-fA-F]+)|0b([01]+)|(\d+)")
CHECK = "iverilog -g2012 -t null design.v"


@frozen
class Verilog(Reward):
    """Rewards a module with the expected behaviour."""

    right: float = 2.1
    """Reward of a module that passes."""
    compiles: float = 0.1
    """Reward of a module that compiles and does not pass."""
    structure: float = 1.0
    """Weight of the similarity to the reference, in [0, 1], for a module that compiles and does not pass."""
    partial: float = 0.0
    """Weight of the share of correct rows, for a module that does not pass."""
    needed: Annotated[float, Field(gt=0.0, le=1.0)] = 0.99
    """Smallest share of correct rows of a passing module."""
    broken: float = 0.0
    """Reward of a module that does not compile, and of a completion without a module."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of a compilation, and of a simulation."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which simulations may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return "verilog"

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` without one that is strong enough, or without Icarus."""
        open_pool(self.weakest)
        if missing_programs(["iverilog", "vvp"]):
            raise UserError("the reward 'verilog' needs Icarus Verilog (on Debian: apt install iverilog)")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compile, simulate and compare each module."""
        return await score_each(group, self._score, self.broken, _fault)

    async def _score(self, trajectory: Trajectory, code: str) -> Score:
        fields = trajectory.task.fields
        reference = str(fields.get("reference") or "")
        # Comments and strings are searched too: a removal of them could be tricked into removing code.
        if calls := [name for name in _CALL.findall(code) if name not in HARMLESS]:
            return self._wrong(code, self.broken, f"has ${calls[0]}: a design computes, and calls nothing else")
        design = renamed(code, reference)
        checked = await self._compile(CHECK, {"design.v": encoded(design)})
        if error := broken(checked):
            return error
        if checked.outcome != "ok" or not _MODULE.search(design):
            return self._wrong(code, self.broken, f"does not compile: {how_it_ended(checked)}")
        files = {"design.v": encoded(design), "bench.v": encoded(fields["testbench"])}
        built = await self._compile(f"{BUILD} >&2 && cat simulation", files)
        share, outcome = 0.0, f"does not fit the test bench: {how_it_ended(built)}"
        if built.outcome == "ok":
            job = Job(command=("vvp", "-n", "simulation"), files={"simulation": built.stdout})
            ran = await open_pool(self.weakest).result(job, self.limits)
            if error := broken(ran):
                return error
            share = matching(ran.stdout, fields["rows"]) if ran.outcome == "ok" else 0.0
            counted = f"{share:.0%} of {len(fields['rows'])} rows are right"
            outcome = counted if ran.outcome == "ok" else how_it_ended(ran)
        elif error := broken(built):
            return error
        if share >= self.needed:
            return Score(value=self.right, status="ok", answer=code, explanation=outcome)
        value = self.compiles + self.partial * share
        value += self.structure * likeness(code, reference) if reference else 0.0
        return self._wrong(code, min(value, self.right), outcome)

    async def _compile(self, command: str, files: dict[str, bytes]) -> Result:
        return await open_pool(self.weakest).result(Job(command=("sh", "-c", command), files=files), self.limits)

    def _wrong(self, code: str, value: float, explanation: str) -> Score:
        return Score(value=value, status="wrong", answer=code, explanation=explanation)


def renamed(code: str, reference: str) -> str:
    """The design with its first module renamed to the first module of the reference, as the test bench expects."""
    own, wanted = _MODULE.search(code), _MODULE.search(reference)
    if own is None or wanted is None or own[1] == wanted[1]:
        return code
    return re.sub(rf"\b{own[1]}\b", wanted[1], code)


def matching(printed: bytes, rows: Sequence[str]) -> float:
    """Share of the rows that are equal at the same position, of the longer of the two lists."""
    lines = [_normal(line) for line in printed.decode("utf-8", errors="replace").splitlines() if line.strip()]
    right = sum(line == _normal(row) for line, row in zip(lines, rows, strict=False))
    return right / max(len(lines), len(rows), 1)


def likeness(code: str, reference: str) -> float:
    """VeriReason's similarity: 0.7 * similarity + 0.3 * coverage - 0.2 * redundancy of the statements, in [0, 1]."""
    own, wanted = statements(code), statements(reference)
    similarity = SequenceMatcher(None, own, wanted, autojunk=False).ratio()
    coverage = len(set(own) & set(wanted)) / max(len(set(wanted)), 1)
    redundancy = sum(s not in wanted for s in own) / len(own) if own else 1.0
    return min(max(0.7 * similarity + 0.3 * coverage - 0.2 * redundancy, 0.0), 1.0)


def statements(code: str) -> list[str]:
    """The statements of a design without comments and spaces, at most `MOST_STATEMENTS`."""
    text = _COMMENT.sub(" ", code)
    found = ["".join(statement.split()) for statement in _STATEMENT.findall(text)]
    return [statement for statement in found if statement][:MOST_STATEMENTS]


def _normal(line: str) -> str:
    """A row without comments, with single spaces and decimal numbers."""
    text = " ".join(line.partition("//")[0].split())
    return _NUMBER.sub(lambda n: str(int(n[1] or n[2] or n[3], 16 if n[1] else 2 if n[2] else 10)), text)


def _fault(trajectory: Trajectory) -> str:
    fields = trajectory.task.fields
    if not isinstance(fields.get("testbench"), str):
        return "has no field 'testbench'"
    rows = fields.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
        return "has no field 'rows', the lines that the test bench should print"
    return ""
