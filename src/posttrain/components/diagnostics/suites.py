"""Suites: how well tests find known wrong solutions: detection rate, verifier accuracy, and how many kinds of faults.

Source: SAGA and TCGBench, arXiv:2507.06920, sections 2 and 3, and the prompts of its release (open-compass/SAGA at
d126c74). Subjects are makers of tests. ``random`` draws inputs, ``boundary`` takes ends of the domain and constants of
the correct solution, and ``differential`` takes inputs on which wrong solutions differ that it may see, a share `seen`
of them. A model is shown a correct solution, and a correct and a wrong one, and writes a program with a validator and
generators for each (`grading/suite_inputs`). The output of a test is that of the correct solutions; where these
disagree, the test is left out and counted.

    posttrain diagnose suites random boundary differential tasks=suites tests=8
    posttrain diagnose suites RUN differential tasks=mine.jsonl
    # columns: prompt, correct (two or more sources), wrong (sources), function (name), domain ([low, high, longest])

Every solution is killed by a suite of `tests` inputs or not: the detection rate is over the wrong solutions of all
tasks, the verifier accuracy over tasks. The curve of the accuracy is the mean over 20 random orders of the tests,
and its area (AUC@N) begins at `fewest` tests. A formula of the paper estimates the detection rate from the mean kill
probability and correlation of tests; it is no upper bound.

Differs: a test is left out where correct solutions disagree, and the paper has one reference. Generators have no
parameters of scale and seed. Faults are made by changing an operator, a constant or a condition of small functions; the
paper has submissions to programming contests.

Measured here over five seeds (30 functions, up to 10 faulty copies each; ``tasks={kind: suites, inputs: 500, seed: S}``
and ``seed=S``): with 8 tests the verifier accuracy of random, boundary and differential inputs is .46 [.36, .56], .61
[.51, .70] and .72 [.70, .74], their detection rate .88, .90 and .955. Random suites verify .21 of the functions with 3
tests and .83 with 30, so that as a reward 3 tests accept a wrong solution of four functions in five. The formula gives
.81, .80 and .85, below the rates; with 30 tests .83 where .97 are killed. Models were not measured.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.datasets import call_inputs
from posttrain.datasets.faulty_functions import Domain, constants
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import TaskFault, UserError
from posttrain.grading import suite_inputs, suites
from posttrain.grading.function_calls import called
from posttrain.grading.programs import code_in
from posttrain.sandbox import Limits, Tier, open_pool
from posttrain.types import Task

ROWS: Final = (286,)
RULES: Final = ("random", "boundary", "differential")
POOL: Final = 100
"""Inputs among which ``differential`` chooses."""
ORDERS: Final = 20
"""Orders of the tests over which the curve is a mean."""


@frozen
class Suites(Diagnostic):
    """Measures tests by the wrong solutions that they kill."""

    subjects: ClassVar[tuple[str, ...]] = ("maker", "...")

    tasks: Tasks
    """Functions with correct and wrong solutions."""
    tests: Annotated[int, Field(ge=1, le=1000)] = 8
    """N: most tests of a task."""
    fewest: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of tests at which the area under the curve begins."""
    seen: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of the wrong solutions that ``differential`` may see, from the first."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=1024)
    """How models write."""
    limits: Limits = Limits(cpu_s=5.0)
    """Limits of one solution, for all inputs."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run."""
    seed: NonNegativeInt = 0
    """Of the draws."""

    def examine(self, *subjects: Subject) -> Finding:
        """Measure every maker on the same tasks."""
        if self.fewest > self.tests:
            raise UserError(f"the area begins at {self.fewest} tests, and there are {self.tests}; lower fewest")
        tasks = self.tasks.load()
        for task in tasks:
            if fault := suites.solutions_fault(task.fields):
                raise TaskFault(task.key, f"task '{task.key}' {fault}")
        open_pool(self.weakest)
        rows = {subject.name: wait_for(self._measure(subject, tasks)) for subject in subjects}
        return Finding(values={"tasks": len(tasks), "makers": rows}, lines=self._lines(rows, len(tasks)))

    async def _measure(self, subject: Subject, tasks: Sequence[Task]) -> dict[str, Any]:
        server = None if subject.name in RULES else subject.serve(subject.load())
        found = await asyncio.gather(*(self._suite(subject.name, server, task) for task in tasks))
        tables = [kills for kills, _ in found]
        counts = {name: sum(own[name] for _, own in found) for name in ("left_out", "disagreed")}
        return self._summary(tables) | counts

    async def _suite(self, name: str, server: Server | None, task: Task) -> tuple[suites.Kills, Mapping[str, int]]:
        """Which wrong solutions each test of a suite kills, and how many inputs were dropped."""
        rng = Random(f"suites:{self.seed}:{name}:{task.key}")
        left_out = 0
        if server is not None:
            inputs, left_out = await self._written(server, task)
        else:
            inputs = await self._by_rule(name, task, rng)
        correct, wrong = task.fields["correct"], task.fields["wrong"]
        outcomes = await asyncio.gather(*(self._outcomes(source, task, inputs) for source in (*correct, *wrong)))
        right, others = outcomes[: len(correct)], outcomes[len(correct) :]
        agreed = [n for n in range(len(inputs)) if _agree([own.get(n) for own in right])]
        rows = [[own.get(n) != right[0][n] for own in others] for n in agreed[: self.tests]]
        kills = np.array(rows, np.bool_).reshape(len(rows), len(wrong))
        return kills, {"left_out": left_out, "disagreed": len(inputs) - len(agreed)}

    async def _outcomes(self, source: str, task: Task, inputs: Sequence[str]) -> dict[int, Any]:
        name = task.fields.get("function", "f")
        calls = [f"{name}({text})" for text in inputs]
        result, outcomes = await called(source, calls, open_pool(self.weakest), self.limits)
        if result.outcome == "sandbox_error":
            raise UserError(f"the sandbox failed: {result.explanation}")
        return outcomes

    async def _by_rule(self, name: str, task: Task, rng: Random) -> list[str]:
        """Inputs by one of the rules."""
        domain = _domain(task)
        known = constants(task.fields["correct"][0])
        if name == "random":
            return call_inputs.random_inputs(domain, self.tests, rng)
        if name == "boundary":
            return call_inputs.boundary_inputs(domain, known, self.tests, rng)
        half = POOL // 2
        drawn = call_inputs.random_inputs(domain, half, rng)
        pool = list(dict.fromkeys([*drawn, *call_inputs.boundary_inputs(domain, known, POOL - half, rng)]))
        wrong = task.fields["wrong"]
        seen = wrong[: math.ceil(self.seen * len(wrong))]
        first, *others = await asyncio.gather(
            *(self._outcomes(source, task, pool) for source in (task.fields["correct"][0], *seen))
        )
        differs = {text: [own.get(n) != first.get(n) for own in others] for n, text in enumerate(pool)}
        return call_inputs.differing_inputs(differs, self.tests, rng)

    async def _written(self, server: Server, task: Task) -> tuple[list[str], int]:
        """Inputs of a model's generators after both analyses, in turns, and how many generators gave none."""
        values = {"correct": task.fields["correct"][0].strip(), "wrong": task.fields["wrong"][0].strip()}
        found: list[list[str]] = []
        failed = 0
        for template in (suite_inputs.MULTIDIMENSIONAL, suite_inputs.DIFFERENTIAL):
            writer = server.bind("suites", task.key, len(found))
            [reply] = await writer.write(template.format(**values), 1, self.sampling)
            inputs, bad = await suite_inputs.generated(code_in(reply) or "", open_pool(self.weakest), self.tests)
            found.append(inputs)
            failed += bad
        longest = max(map(len, found))
        mixed = [own[n] for n in range(longest) for own in found if n < len(own)]
        return list(dict.fromkeys(mixed)), failed

    def _summary(self, tables: Sequence[suites.Kills]) -> dict[str, Any]:
        """All metrics of a maker."""
        killed = sum(int(own.any(axis=0).sum()) for own in tables)
        solutions = sum(own.shape[1] for own in tables)
        curve = [float(np.mean([self._accuracy(own, k) for own in tables])) for k in range(1, self.tests + 1)]
        tests = float(np.mean([len(own) for own in tables]))
        rho = float(np.mean([suites.correlation(own) for own in tables]))
        cells = sum(own.size for own in tables)
        p = sum(int(own.sum()) for own in tables) / cells if cells else 0.0
        return {
            "tests": tests,
            "detection_rate": killed / solutions,
            "verifier_accuracy": float(np.mean([suites.verifies(own) for own in tables])),
            "curve": curve,
            "auc": suites.area(curve, self.fewest),
            "patterns": float(np.mean([suites.patterns(own) for own in tables])),
            "diversity": float(np.mean([suites.diversity(own) for own in tables])),
            "kill_probability": p,
            "correlation": rho,
            "effective_tests": suites.effective(round(tests), rho) if tests >= 1 else 0.0,
            "saturation": suites.saturation(p, round(tests), rho) if tests >= 1 else 0.0,
        }

    def _accuracy(self, kills: suites.Kills, k: int) -> float:
        """Verifier accuracy of the first k tests, over orders; that of all where there are no more."""
        if k >= len(kills):
            return float(suites.verifies(kills))
        rng = np.random.Generator(np.random.Philox(key=[self.seed, k]))
        picks = (rng.permutation(len(kills))[:k] for _ in range(ORDERS))
        return float(np.mean([suites.verifies(kills[own]) for own in picks]))

    def _lines(self, rows: Mapping[str, Mapping[str, Any]], count: int) -> list[str]:
        """A table."""
        width = max(map(len, rows))
        lines = [
            f"{count} functions, at most {self.tests} tests each",
            f"{'':{width}}  detected  verified  AUC@{self.tests:<3} patterns  diversity  n_eff  formula  left out",
        ]
        for name, row in rows.items():
            lines.append(
                f"{name:{width}}  {row['detection_rate']:8.3f}  {row['verifier_accuracy']:8.3f}  {row['auc']:7.3f} "
                f"{row['patterns']:8.2f}  {row['diversity']:9.2f}  {row['effective_tests']:5.1f}  "
                f"{row['saturation']:7.3f}  {row['left_out'] + row['disagreed']:8d}"
            )
        return lines


def _agree(outcomes: Sequence[Any]) -> bool:
    """Whether all returned the same value."""
    first = outcomes[0]
    return isinstance(first, list) and first[:1] == ["value"] and all(own == first for own in outcomes)


def _domain(task: Task) -> Domain:
    """What a rule draws from. Raises `UserError` for a task without it."""
    match task.fields.get("domain"):
        case [int() as low, int() as high, int() as longest] if low <= high and longest >= 0:
            return low, high, longest
    raise TaskFault(
        task.key,
        f"task '{task.key}' has no field 'domain' to draw inputs from: [least, largest, longest list], with 0 as the "
        "last for a function of one number",
    )
