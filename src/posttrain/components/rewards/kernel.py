"""A program with kernels that gives what a program in PyTorch gives, on inputs that are drawn anew each time.

Source: the execution reward of AutoTriton, arXiv:2507.05687, section 3.3: 1 where all tests pass, 0 otherwise; no
partial credit, nothing for speed. A rule on the text (`rewards/uses`) belongs before it:

    {kind: gated, reward: {kind: kernel, dialect: triton}, gate: {uses: {kind: uses, define: [triton.jit], ...}}}

A task has the fields ``reference`` (Python with torch), ``function`` (its name, and that of the program's entry point;
``f`` without the field) and ``inputs``: a list of cases, each a list of arguments, arrays as ``float32[3,17]``.

1. For each case arrays are drawn, by the task, the step and the run's seed. The reference runs in a worker that can be
   killed, the program in the sandbox; the reference and its results never enter it.
2. All results are compared outside: dtype, shape, and each value within a tolerance of its dtype.
3. What was launched must compile: to PTX for `capability` with ``dialect: triton``; with ``toy`` by our own checks. A
   kernel that reaches for Python gives right results in the interpreter, and is refused here.

With `strict`, arrays have no operators outside of kernels, and a result must be an array that a kernel wrote: a wrapper
that launches one and returns ``x + y`` fails. A program is never asked whether it is right, so nothing that it prints
counts. The work of the kernels is counted (part ``work``: loads, stores, and with Triton operations) and has no reward.

A task without cases, and a reference that fails, give status ``error``. Programs that crash, hang or use too much have
0, and the sandbox goes on.

Differs: tolerances are ours (`tolerance`), as are the distribution and the number of inputs. On a machine without a GPU
kernels are interpreted, so that races between programs of one launch are not seen.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.engines import wait_for
from posttrain.errors import TaskFault, UserError
from posttrain.grading import triton_kernels
from posttrain.grading.kernel_references import Expected, expected_of
from posttrain.grading.kernel_runs import Dialect, Programs, Run
from posttrain.grading.kernel_values import TOLERANCE, Argument, cases_of, difference, drawn
from posttrain.grading.programs import LONGEST, find_code
from posttrain.grading.references import MOST_CHECKED, check_each, unchecked
from posttrain.grading.workers import Limits as WorkerLimits
from posttrain.grading.workers import Runner
from posttrain.sandbox import Limits, Pool, Tier, open_pool, usable_cores
from posttrain.types import Group, Score, Task

COMPILER: Final = "posttrain.grading.program_names:open_toy"
TOY: Final = frozenset({"float32", "float64", "int32", "int64"})
"""Dtypes of the toy language."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """What a task requires."""

    reference: str
    function: str
    cases: Sequence[Sequence[Any]]


@frozen
class Kernel(Reward):
    """Rewards programs whose kernels give the values of the reference program."""

    dialect: Dialect = "triton"
    """The language of the kernels: Triton's, or a small one that needs no library."""
    strict: bool = True
    """Whether results must come from kernels. Without it arrays have operators, and programs of the toy language the
    function ``reference``, as where the library that kernels replace can be imported."""
    compiles: bool = True
    """Whether kernels must compile."""
    capability: Annotated[int, Field(ge=70, le=120)] = 80
    """Compute capability of the GPU for which Triton compiles, times ten."""
    tolerance: Mapping[str, NonNegativeFloat] = Field(default_factory=dict)
    """By dtype, the largest difference, as a share of the largest expected magnitude of an array; what is not named has
    1e-2 (float16), 2e-2 (bfloat16), 1e-4 (float32), 1e-7 (float64), and 0 for integers."""
    references: NonNegativeInt = MOST_CHECKED
    """Most reference programs that are run before training; of more tasks some, evenly spread."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of one program, and again of compiling its kernels. Triton itself takes 0.2 to 0.3 seconds and 106 MB of
    them; a program of many kernels, or of large arrays, needs more."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return "python"

    def prepare(self) -> None:
        """Find Triton, and open the sandbox. Raises `UserError` without them."""
        for name in self.tolerance:
            if name not in TOLERANCE:
                raise UserError(f"tolerance names the dtype '{name}'; {nearest(name, TOLERANCE)}")
        if self.dialect == "triton":
            triton_kernels.folders()
        self._pool()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without reference or inputs, or a reference that fails on them."""
        for task in tasks:
            try:
                self._problem(task)
            except ValueError as error:
                raise TaskFault(task.key, f"task '{task.key}' {error}") from None

        async def run(task: Task) -> Expected | str:
            problem = self._problem(task)
            return await expected_of(problem.reference, problem.function, _inputs(task, problem, 0, 0))

        def refuse(task: Task, expected: Expected | str) -> None:
            if isinstance(expected, str):
                raise TaskFault(task.key, f"task '{task.key}': {expected}")

        wait_for(check_each(tasks, run, refuse, self.references))

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many references are not run before training."""
        return unchecked(len(tasks), self.references)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Run the programs of each task together, equal ones once."""
        tasks = {id(t.task): t.task for t in group}
        texts = [(find_code(t) or "")[: LONGEST + 1] for t in group]
        keys = [(id(t.task), text) for t, text in zip(group, texts, strict=True)]
        own = {
            number: [text for owner, text in dict.fromkeys(keys) if owner == number and text and len(text) <= LONGEST]
            for number in tasks
        }
        found = await asyncio.gather(*(self._scores(tasks[number], own[number], context) for number in tasks))
        scores = {(number, text): score for number, each in zip(tasks, found, strict=True) for text, score in each}
        return [scores.get(key) or self._nothing(tasks[key[0]], key[1]) for key in keys]

    def _pool(self) -> Pool:
        """Where programs run: with Triton in one sandbox for each core, since each holds an interpreter that has loaded
        the library.
        """
        return open_pool(self.weakest, slots=usable_cores() if self.dialect == "triton" else None)

    def _nothing(self, task: Task, text: str) -> Score:
        try:
            self._problem(task)
        except ValueError as error:
            return failure(f"task '{task.key}' {error}")
        nothing = "no program" if not text else f"longer than {LONGEST} characters: not run"
        return Score(value=0.0, status="wrong", explanation=nothing)

    async def _scores(self, task: Task, texts: Sequence[str], context: RewardContext) -> list[tuple[str, Score]]:
        if not texts:
            return []
        try:
            problem = self._problem(task)
        except ValueError as error:
            return [(text, failure(f"task '{task.key}' {error}")) for text in texts]
        inputs = _inputs(task, problem, context.seed, context.step)
        programs = Programs(self.dialect, problem.function, self._pool(), self.limits)
        known = problem.reference if self.dialect == "toy" and not self.strict else ""
        expected, runs = await asyncio.gather(
            expected_of(problem.reference, problem.function, inputs),
            programs.results(texts, inputs, strict=self.strict, reference=known),
        )
        if isinstance(expected, str):
            return [(text, failure(f"task '{task.key}': {expected}")) for text in texts]
        faults = [run.fault or self._difference(run, expected) for run in runs]
        refused = await self._refusals(programs, texts, runs, faults)
        return [
            (text, _scored(text, run, fault, refusal))
            for text, run, fault, refusal in zip(texts, runs, faults, refused, strict=True)
        ]

    def _difference(self, run: Run, expected: Expected) -> str:
        """How results differ from those of the reference; empty where they do not."""
        tolerance = {**TOLERANCE, **self.tolerance}
        for number, (own, wanted) in enumerate(zip(run.results, expected, strict=True), 1):
            if len(own) != len(wanted):
                return f"case {number}: {len(own)} results in place of {len(wanted)}"
            for result, array in zip(own, wanted, strict=True):
                if fault := difference(result, array, tolerance[array.dtype]):
                    return f"case {number}: {fault}"
        return ""

    async def _refusals(
        self, programs: Programs, texts: Sequence[str], runs: Sequence[Run], faults: Sequence[str]
    ) -> list[str]:
        """Why kernels do not compile, of programs whose results are right."""
        right = [n for n, (run, fault) in enumerate(zip(runs, faults, strict=True)) if not fault and not run.broken]
        found = [""] * len(texts)
        if not self.compiles or not right:
            return found
        if self.dialect == "toy":
            (outcome,) = await _toy_compiler().run([[texts[n] for n in right]])
            refused = outcome.value if outcome.how == "ok" else [f"compiling was ended: {outcome.how}"] * len(right)
        else:
            asked = [n for n in right if runs[n].launches]
            own = [texts[n] for n in asked]
            answers = await programs.refusals(own, [runs[n].launches for n in asked], self.capability) if own else []
            by_place = dict(zip(asked, answers, strict=True))
            refused = [by_place.get(n, "it launches no kernel") for n in right]
        for n, text in zip(right, refused, strict=True):
            found[n] = text
        return found

    def _problem(self, task: Task) -> _Problem:
        """Raises `ValueError` with what is missing."""
        reference, function = task.fields.get("reference", task.answer), task.fields.get("function", "f")
        if not isinstance(reference, str) or not reference.strip():
            raise ValueError("has no field 'reference', a program in PyTorch")
        if not isinstance(function, str) or not function.isidentifier():
            raise ValueError(f"has the function {function!r:.40}, which is no name")
        cases = cases_of(task.fields.get("inputs"))
        other = {argument[0] for case in cases for argument in case if isinstance(argument, tuple)} - TOY
        if self.dialect == "toy" and other:
            raise ValueError(f"has arrays of {', '.join(sorted(other))}, which the toy language does not know")
        return _Problem(reference, function, cases)


def _inputs(task: Task, problem: _Problem, seed: int, step: int) -> list[list[Argument]]:
    """Arrays for all cases: others in each step, the same each time that a step is scored."""
    words = np.frombuffer(f"{task.key}:{seed}:{step}".encode(), np.uint8)
    rng = np.random.default_rng(words.tolist())
    return [drawn(case, rng) for case in problem.cases]


def _scored(text: str, run: Run, fault: str, refusal: str) -> Score:
    if run.broken:
        return failure(run.broken)
    work = {name: Score(value=float(count), status="ok") for name, count in sorted(run.work.items())}
    if fault or refusal:
        why = fault or f"it does not compile: {refusal}"
        return Score(value=0.0, status="wrong", answer=text, explanation=why, parts=work)
    return Score(value=1.0, status="ok", answer=text, explanation="the values of the reference", parts=work)


@cache
def _toy_compiler() -> Runner:
    limits = WorkerLimits(cpu_seconds=5.0, wall_seconds=150.0, memory_mib=512)
    return Runner(COMPILER, limits=limits, preload=("posttrain.grading.program_names", "posttrain.grading.toy_kernels"))
