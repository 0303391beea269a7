"""Test benches that a model writes and repairs, in place of those of the data; tasks without a usable one are dropped.

Source: VeriPrefer, Wang et al. 2025, arXiv:2504.15804: a language model writes a test bench from the specification and
repairs it by the messages of compiler and simulator, in at most k rounds; a pair of specification and bench that never
compiles is dropped. A bench that passes what a faulty module prints carries no signal: it is tried with mutants of the
reference, a negated output and swapped operators, and goes if one of them prints the same rows.

A task needs the fields ``reference``, a correct module, whose rows become the expected ones. The bench, its rows and
the number of repairs are in the fields ``testbench``, ``rows`` and ``origin`` of the task.

Differs: the paper's prompts, its steps (a list of cases, then stimulus, then checks) and k are not published in what
was read; here the bench is asked for at once, and it prints what it sees instead of checking it.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.datasets.templates import fill, question_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.grading.benches import mutants, simulated
from posttrain.grading.programs import code_in
from posttrain.sandbox import Limits, Tier
from posttrain.types import Task

WRITE = (
    "Write a Verilog test bench for the module below. It has no inputs, sets the inputs of the module to every "
    "important case, and prints one line with $display for each case. Give it in one fenced block.\n\n"
    "Specification:\n{question}\n\nInterface:\n{reference}\n"
)
REPAIR = (
    "This test bench failed:\n```verilog\n{bench}\n```\nThe message was:\n{message}\n\nSpecification:\n{question}\n\n"
    "Interface:\n{reference}\n\nGive the repaired test bench in one fenced block.\n"
)


@frozen
class WrittenBenches(Selection):
    """Replaces the test benches of tasks by those of a model."""

    writer: str = "writer"
    """Role of the model that writes: of the recipe, or behind an endpoint."""
    repairs: Annotated[int, Field(ge=0, le=20)] = 3
    """k: most repairs of a bench."""
    mutants: NonNegativeInt = 3
    """Most faulty modules that a bench is tried with."""
    write: str = WRITE
    """Prompt for a bench. Placeholders: question, reference (the head of the module)."""
    repair: str = REPAIR
    """Prompt for a repair. Placeholders: question, reference, bench, message."""
    sampling: Sampling = Sampling(max_tokens=1024)
    """How the writer writes."""
    limits: Limits = Limits(cpu_s=10.0)
    """Limits of a compilation, and of a simulation."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which simulations may be run."""

    @property
    def roles(self) -> frozenset[str]:
        """The writer."""
        return frozenset({self.writer})

    @property
    def writes(self) -> frozenset[str]:
        """The fields of a bench."""
        return frozenset({"testbench", "rows"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task its bench and rows, or the reason why it has none."""
        for task in tasks:
            if not isinstance(task.fields.get("reference"), str):
                raise UserError(f"task {task.key} has no field 'reference', a correct module to try a bench with")
        return list(await asyncio.gather(*(self._bench(task, samplers[self.writer]) for task in tasks)))

    async def _bench(self, task: Task, writer: Sampler) -> dict[str, Any]:
        """Write, repair and try the bench of a task."""
        reference = str(task.fields["reference"])
        values = {"question": question_of(task), "reference": reference.partition(";")[0].strip() + ";"}
        prompt, reason = fill(self.write, values), ""
        for repairs in range(self.repairs + 1):
            [reply] = await writer.bind("bench", task.key, repairs).write(prompt, 1, self.sampling)
            bench = code_in(reply) or ""
            printed = await simulated(reference, bench, self.limits, self.weakest)
            if printed.rows:
                if await self._passes_a_mutant(reference, bench, printed.rows):
                    return {"reason": "its bench passes a faulty module"}
                return {"testbench": bench, "rows": list(printed.rows), "repairs": repairs}
            reason = f"its bench does not run after {self.repairs} repairs"
            prompt = fill(self.repair, {**values, "bench": bench, "message": printed.message[:2000]})
        return {"reason": reason}

    async def _passes_a_mutant(self, reference: str, bench: str, rows: tuple[str, ...]) -> bool:
        made = mutants(reference, self.mutants)
        found = await asyncio.gather(*(simulated(own, bench, self.limits, self.weakest) for own in made))
        return any(printed.rows == rows for printed in found)

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with their benches; the summary counts repairs and reasons."""
        chosen = []
        for task, row in zip(tasks, measured, strict=True):
            if "reason" not in row:
                origin = [{"writer": self.writer, "repairs": row["repairs"]}]
                fields = {**task.fields, "testbench": row["testbench"], "rows": row["rows"], "origin": origin}
                chosen.append(replace(task, fields=fields))
        reasons = Counter(row["reason"] for row in measured if "reason" in row)
        reasons_shown = "".join(f"; {number} dropped: {reason}" for reason, number in sorted(reasons.items()))
        repaired = sum(row.get("repairs", 0) > 0 for row in measured)
        return Chosen(
            tasks=chosen,
            summary=f"{len(chosen)} of {len(tasks)} tasks have a bench by '{self.writer}', {repaired} of them "
            f"repaired{reasons_shown}",
        )
