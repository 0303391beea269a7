"""Programs that are right, and the more the less work they do: instructions are counted, not seconds.

Tasks are those of `io_tests`, with a reference program as the answer or in the field ``reference``. Source: Yang et al.
2024 (ACECode), arXiv:2412.17264: 0.5 + 0.5 * min(t_ref / t_own, 1) for a program that passes every test, less than that
by a step for each way of failing.

Differs: t is the number of instructions that Valgrind counts in all tests together, without those of an empty program:
the same at every load, where seconds are not, and for languages without random hashes to the instruction. The cap of 1
and the levels of failure are not in the sources that are to be had; the levels are ours. A program has one process, so
that no work is done uncounted; one that replaces itself, or writes what only the counter writes, is not paid.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.languages import (
    PASSED,
    Language,
    build,
    fault_of_tests,
    find_language,
    job_of,
    need_commands,
    verdict,
)
from posttrain.grading.programs import broken, how_it_ended, judge_each
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
"""References whose work is remembered; their tasks come again, in later steps and in evaluations."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a program did in all tests."""

    instructions: int = 0
    fault: str = ""
    """Which test it failed and how; empty where it passed all."""
    ran: bool = True
    """Whether it ran to its end, so that the fault is in what it printed."""
    error: Score | None = None
    """Set where nothing can be said."""


@frozen
class CountedWork(Reward):
    """Pays for programs that are right, more for those that do no more work than a reference."""

    language: str = "python"
    """Language of the programs."""
    languages: Mapping[str, Language] = Field(default_factory=dict)
    """More languages by name, as for `io_tests`."""
    cap: float = Field(default=1.0, gt=0.0)
    """The most that reference / own work counts."""
    unbuilt: float = -1.0
    """Reward of what does not compile, and of a completion without a program."""
    crashed: float = -0.6
    """Reward of a program that crashes or breaks a limit."""
    wrong: float = -0.3
    """Reward of a program that prints something wrong."""
    limits: Limits = Limits(cpu_s=60.0, wall_s=300.0, memory_mb=1024)
    """What one counted run may use; counting takes fifty times as long as running."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return self.language

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` where there is none, no counter, or not the language."""
        open_pool(self.weakest)
        need_commands(self.language, self._language)
        if missing_programs(["valgrind"]):
            raise UserError("counted_work counts by valgrind, which is not installed (on Debian: apt install valgrind)")

    @cached_property
    def _language(self) -> Language:
        return find_language(self.language, self.languages)

    @cached_property
    def _references(self) -> dict[str, int]:
        """Instructions of references, by program and tests."""
        return {}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count the reference's work once, and that of every program."""
        references: dict[int, int | Score] = {}
        for task in {id(trajectory.task): trajectory.task for trajectory in group}.values():
            if not _fault(task):
                references[id(task)] = await self._reference(task)

        async def judge(trajectory: Trajectory, code: str) -> Score:
            return await self._judge(trajectory.task, code, references[id(trajectory.task)])

        return await judge_each(group, judge, self.unbuilt, lambda trajectory: _fault(trajectory.task))

    async def _reference(self, task: Task) -> int | Score:
        """Work of the reference program; a failure where it does not pass its own tests."""
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

    async def _judge(self, task: Task, code: str, reference: int | Score) -> Score:
        if isinstance(reference, Score):
            return reference
        built = await build(open_pool(self.weakest), self._language, code)
        if isinstance(built, Result):
            said = f"does not compile: {how_it_ended(built)}"
            return broken(built) or Score(value=self.unbuilt, status="wrong", answer=code, explanation=said)
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
        """Run a program for every test, and an empty one, and count."""
        nothing, total = await self._start(), 0
        if isinstance(nothing, Score):
            return Work(error=nothing)
        for number, test in enumerate(task.fields["tests"]):
            result = await self._count(built, test["input"])
            if error := broken(result):
                return Work(error=error)
            if (said := verdict(result, test["output"])) != PASSED:
                fault = f"test {number + 1} of {len(task.fields['tests'])}: {said}"
                return Work(fault=fault, ran=result.outcome == "ok")
            counted = instructions(result.stderr)
            if counted is None:
                return Work(fault="was not counted: it replaced itself, or wrote what the counter writes", ran=False)
            total += max(counted - nothing, 0)
        return Work(instructions=total)

    async def _start(self) -> int | Score:
        """What starting and ending a program takes: the work of an empty one; a failure where nothing is counted."""
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
    """0.5 + 0.5 * min(reference / own, cap); a program without work has the cap."""
    return 0.5 + 0.5 * (min(reference / own, cap) if own > 0 else cap)


def instructions(said: bytes) -> int | None:
    """The count in what the counter said; None unless it began once and counted once, so that nothing is forged."""
    begun, counted = _BEGINS.findall(said), _COUNTED.findall(said)
    return int(counted[0].replace(b",", b"")) if len(begun) == len(counted) == 1 else None


def reference_of(task: Task) -> str:
    """The reference program of a task; empty where it has none."""
    reference: Any = task.fields.get("reference", task.answer)
    return reference if isinstance(reference, str) else ""


def _fault(task: Task) -> str:
    fault = fault_of_tests(task.fields.get("tests"))
    return fault or (
        "" if reference_of(task).strip() else "has no reference program: an answer, or a field 'reference'"
    )
