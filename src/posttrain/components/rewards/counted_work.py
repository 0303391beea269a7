"""Rewards correct programs by efficiency: executed instructions relative to a reference program.

Tasks are those of `io_tests`, with a reference program as the answer or in the field ``reference``. Source: Yang et al.
2024 (ACECode), arXiv:2412.17264: 0.5 + 0.5 * min(t_ref / t_own, 1) for a program that passes every test, and a lower
level for each kind of failure.

Differs: t is not a time but the number of instructions that Valgrind counts over all tests, without those of an empty
program. It does not depend on the load of the machine, and is exact for languages without random hashes. The cap of 1
and the levels of failure are not in the available sources; the levels are ours. A program has one process, so that all
work is counted. A program that replaces itself, or prints what only the counter prints, is not rewarded.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.engines import wait_for
from posttrain.errors import TaskFault, UserError
from posttrain.grading.languages import (
    PASSED,
    Language,
    build,
    fault_of_tests,
    find_language,
    first_fault,
    job_of,
    need_commands,
    verdict,
)
from posttrain.grading.programs import broken, how_it_ended, score_each
from posttrain.grading.references import MOST_CHECKED, check_references, has_reference, reference_of, unchecked
from posttrain.sandbox import Limits, Result, Tier, missing_programs, open_pool
from posttrain.types import Group, Score, Task, Trajectory

Files = dict[str, bytes]
COUNTER: Final = (
    *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--branch-sim=no", "--cachegrind-out-file=/dev/null"),
    *("--trace-children=yes", "--log-fd=2"),
)
_BEGINS: Final = re.compile(rb"^==\d+== Cachegrind, ", re.MULTILINE)
_COUNTED: Final = re.compile(rb"^==\d+== I\s+refs:\s+([\d,]+)", re.MULTILINE)


_nothing: dict[Language, int] = {}
"""Instructions of a program that does nothing: measured once."""
MOST_REFERENCES: Final = 4096
"""Number of references whose work is cached for later steps and evaluations."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work and outcome of a program over all tests."""

    instructions: int = 0
    fault: str = ""
    """Which test it failed and how; empty if it passed all."""
    ran: bool = True
    """Whether it ran to its end, so that the fault is in its output."""
    error: Score | None = None
    """The score where counting failed."""


@frozen
class CountedWork(Reward):
    """Rewards programs that pass all tests, more the fewer instructions they execute."""

    language: str = "python"
    """Language of the programs."""
    languages: Mapping[str, Language] = Field(default_factory=dict)
    """Further languages by name, as in `io_tests`."""
    cap: float = Field(default=1.0, gt=0.0)
    """Largest value of the ratio of reference work to own work."""
    unbuilt: float = -1.0
    """Reward of a program that does not compile, and of a completion without a program."""
    crashed: float = -0.6
    """Reward of a program that crashes or exceeds a limit."""
    wrong: float = -0.3
    """Reward of a program with a wrong output."""
    references: NonNegativeInt = MOST_CHECKED
    """Most reference programs that are run before training; of more tasks some, evenly spread; uncounted."""
    limits: Limits = Limits(cpu_s=60.0, wall_s=300.0, memory_mb=1024)
    """Limits of one counted run, which takes fifty times as long as a plain one."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return self.language

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` where it, Valgrind or the language is missing."""
        open_pool(self.weakest)
        need_commands(self.language, self._language)
        if missing_programs(["valgrind"]):
            raise UserError("counted_work counts by valgrind, which is not installed (on Debian: apt install valgrind)")

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a test or a reference program, or with one that fails a test."""
        for task in tasks:
            if fault := _fault(task):
                raise TaskFault(task.key, f"task '{task.key}' {fault}")
        wait_for(check_references(tasks, self._uncounted, self.references))

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many references are not run before training."""
        return unchecked(sum(has_reference(task) for task in tasks), self.references)

    async def _uncounted(self, trajectory: Trajectory, code: str) -> Score:
        """Whether a program passes its tests."""
        pool, tests = open_pool(self.weakest), trajectory.task.fields["tests"]
        built = await build(pool, self._language, code)
        if isinstance(built, Result):
            fault = f"does not compile: {how_it_ended(built)}"
            return broken(built) or Score(value=self.unbuilt, status="wrong", explanation=fault)
        fault, result = await first_fault(pool, self._language, built, tests, self.limits)
        return (broken(result) if result else None) or Score(
            value=0.0, status="wrong" if fault else "ok", explanation=fault
        )

    @cached_property
    def _language(self) -> Language:
        return find_language(self.language, self.languages)

    @cached_property
    def _references(self) -> dict[str, int]:
        """Instructions of reference programs, by program and tests."""
        return {}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count the instructions of each reference once, and those of every program."""
        references: dict[int, int | Score] = {}
        for task in {id(trajectory.task): trajectory.task for trajectory in group}.values():
            if not _fault(task):
                references[id(task)] = await self._reference(task)

        async def score(trajectory: Trajectory, code: str) -> Score:
            return await self._score(trajectory.task, code, references[id(trajectory.task)])

        return await score_each(group, score, self.unbuilt, lambda trajectory: _fault(trajectory.task))

    async def _reference(self, task: Task) -> int | Score:
        """Instructions of the reference program; a failure if it does not pass its own tests."""
        name = json.dumps([reference_of(task), task.fields["tests"]])
        if name in self._references:
            return self._references[name]
        built = await build(open_pool(self.weakest), self._language, reference_of(task))
        if isinstance(built, Result):
            return failure(f"the reference program of task '{task.key}': {how_it_ended(built)}")
        work = await self._work(task, built)
        if work.error or work.fault:
            return work.error or failure(f"the reference program of task '{task.key}': {work.fault}")
        if len(self._references) < MOST_REFERENCES:
            self._references[name] = work.instructions
        return work.instructions

    async def _score(self, task: Task, code: str, reference: int | Score) -> Score:
        if isinstance(reference, Score):
            return reference
        built = await build(open_pool(self.weakest), self._language, code)
        if isinstance(built, Result):
            fault = f"does not compile: {how_it_ended(built)}"
            return broken(built) or Score(value=self.unbuilt, status="wrong", answer=code, explanation=fault)
        work = await self._work(task, built)
        if work.error:
            return work.error
        if work.fault:
            value = self.wrong if work.ran else self.crashed
            return Score(value=value, status="wrong", answer=code, explanation=work.fault)
        value = efficiency(work.instructions, reference, self.cap)
        explanation = f"passes, with {work.instructions} instructions where the reference has {reference}"
        return Score(value=value, status="ok", answer=code, explanation=explanation)

    async def _work(self, task: Task, built: Files) -> Work:
        """Count the instructions of a program over all tests, without those of an empty one."""
        nothing, total = await self._start(), 0
        if isinstance(nothing, Score):
            return Work(error=nothing)
        for number, test in enumerate(task.fields["tests"]):
            result = await self._count(built, test["input"])
            if error := broken(result):
                return Work(error=error)
            if (outcome := verdict(result, test["output"])) != PASSED:
                fault = f"test {number + 1} of {len(task.fields['tests'])}: {outcome}"
                return Work(fault=fault, ran=result.outcome == "ok")
            counted = instructions(result.stderr)
            if counted is None:
                return Work(fault="was not counted: it replaced itself, or wrote what the counter writes", ran=False)
            total += max(counted - nothing, 0)
        return Work(instructions=total)

    async def _start(self) -> int | Score:
        """Instructions of an empty program; a failure where nothing is counted."""
        if self._language not in _nothing:
            built = await build(open_pool(self.weakest), self._language, self._language.empty or "\n")
            ran = built if isinstance(built, Result) else await self._count(built, "")
            counted = instructions(ran.stderr)
            if counted is None:
                return broken(ran) or failure(f"valgrind counts nothing in the sandbox here: {how_it_ended(ran)}")
            _nothing[self._language] = counted
        return _nothing[self._language]

    async def _count(self, built: Files, stdin: str) -> Result:
        """One counted run."""
        job = job_of(self._language, built, stdin)
        job = replace(job, command=(*COUNTER, *job.command), environment={"PYTHONHASHSEED": "0"})
        return await open_pool(self.weakest).result(job, replace(self.limits, processes=1))


def efficiency(own: int, reference: int, cap: float = 1.0) -> float:
    """0.5 + 0.5 * min(reference / own, cap); a program without instructions gets the cap."""
    return 0.5 + 0.5 * (min(reference / own, cap) if own > 0 else cap)


def instructions(log: bytes) -> int | None:
    """The count in the counter's log; None unless it has exactly one start and one count, so that none is forged."""
    begun, counted = _BEGINS.findall(log), _COUNTED.findall(log)
    return int(counted[0].replace(b",", b"")) if len(begun) == len(counted) == 1 else None


def _fault(task: Task) -> str:
    fault = fault_of_tests(task.fields.get("tests"))
    return fault or (
        "" if reference_of(task).strip() else "has no reference program: an answer, or a field 'reference'"
    )
