"""A function of which a block was extracted: one point for each of three independent checks, or of four.

Source: Palit and Sharma, "Generating refactored code accurately using reinforcement learning", arXiv:2412.18035, and
its release (SMART-Dal/extract-method-generation at 966926a). The text is parsed, compiled in a class of its own, and
searched for an extracted method; each adds 1, and a failed check stops no other one. Tests are not run.

    1  syntax      the text parses
    1  names       it compiles, and all names resolve, the function's own included
    1  extraction  a new function, called from the old one, holds statements that this one lost
    1  results     with `execution`: the function returns what it did on all inputs of the task

A task has the fields ``source`` (the function, with all that it uses) and ``function`` (its name, ``f`` without the
field). `execution` needs ``inputs``, a list of argument lists of literals. The program is the last fenced block of the
completion, or all of it.

A copy has 2 of 3, and so has a function that nothing calls; an extraction that changes what the function returns has 3.
It has 3 of 4 with `execution`, as has a copy: then only a correct extraction has 4.

Differs: Python in place of Java, so that the parser is Python's, or tree-sitter's for Python (``parser: tree_sitter``,
`pip install 'posttrain[refactoring]'`), names are resolved by the compiler's symbol table in place of javac, and the
extraction is found by syntax trees (`posttrain.grading.extracted_functions`) in place of RefactoringMiner. Texts are
parsed in workers that can be killed, and run in the sandbox.
"""

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.extracted_functions import CHECKS, open_checks
from posttrain.grading.programs import LONGEST, find_code
from posttrain.grading.same_results import same_results
from posttrain.grading.workers import Limits as WorkerLimits
from posttrain.grading.workers import Outcome, Runner, inside_worker
from posttrain.sandbox import Limits, Tier, open_pool
from posttrain.types import Group, Score, Task, Trajectory

GRADER = "posttrain.grading.extracted_functions:open_checks"
ON_THE_CLOCK = 30.0
"""Seconds on the clock for a second of processor time."""
Key = tuple[int, str]
"""The id of a task, and a text."""


@frozen
class Refactored(Reward):
    """Rewards syntax, resolved names, an extracted function, and equal results."""

    parser: Literal["python", "tree_sitter"] = "python"
    """What parses the text for the first check."""
    execution: bool = False
    """Whether equal results are a fourth check."""
    partial: bool = True
    """Whether each check is a point; otherwise the reward is 1 where all pass, and 0."""
    time_limit: Annotated[float, Field(gt=0.0, le=600.0)] = 1.0
    """Seconds of processor time for the checks of one text."""
    memory_mib: Annotated[int, Field(ge=64, le=1 << 20)] = 512
    """Memory for the checks of one text."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of one text that is run."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which texts may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """Python, where texts are run."""
        return "python" if self.execution else ""

    def prepare(self) -> None:
        """Find the parser, and open the sandbox if texts are run. Raises `UserError` without them."""
        if self.parser == "tree_sitter" and importlib.util.find_spec("tree_sitter_python") is None:
            raise UserError("parser tree_sitter needs the library; pip install 'posttrain[refactoring]'")
        if self.execution:
            open_pool(self.weakest)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a function that is compiled, or inputs that are needed."""
        for task in tasks:
            if fault := self._fault(task):
                raise TaskFault(task.key, f"task '{task.key}' {fault}")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Check each text of a task once."""
        texts = [(find_code(t) or "")[: LONGEST + 1] for t in group]
        found: dict[tuple[int, str], Score] = {}
        faults = {id(t.task): self._fault(t.task) for t in group}
        tasks = {id(t.task): t.task for t in group}
        keys = [(id(t.task), text) for t, text in zip(group, texts, strict=True)]
        valid = [key for key in dict.fromkeys(keys) if not faults[key[0]] and key[1] and len(key[1]) <= LONGEST]
        outcomes = await self._checked([self._call(tasks[number], text) for number, text in valid])
        same = await self._same_results(tasks, dict(zip(valid, outcomes, strict=True))) if self.execution else {}
        for key, outcome in zip(valid, outcomes, strict=True):
            found[key] = self._scored(key[1], outcome, same.get(key, False))
        return [self._score(t, key, faults, found) for t, key in zip(group, keys, strict=True)]

    def _score(
        self, trajectory: Trajectory, key: tuple[int, str], faults: Mapping[int, str], found: Mapping[Any, Score]
    ) -> Score:
        if fault := faults[key[0]]:
            return failure(f"task '{trajectory.task.key}' {fault}")
        nothing = "no program" if not key[1] else f"longer than {LONGEST} characters"
        return found.get(key) or Score(value=0.0, status="wrong", explanation=nothing)

    async def _checked(self, calls: Sequence[Mapping[str, str]]) -> list[Outcome]:
        if not inside_worker():
            return await self._runner.run(calls) if calls else []
        checks = open_checks({"parser": self.parser})
        return [Outcome(how="ok", value=checks(call)) for call in calls]

    def _scored(self, text: str, outcome: Outcome, same_results: bool | str) -> Score:
        if outcome.how != "ok":
            if outcome.how == "infra_error":
                return failure(f"the checks failed: {outcome.explanation}")
            return Score(value=0.0, status="wrong", explanation=f"the checks were ended: {outcome.how}")
        passed: dict[str, bool] = {name: outcome.value[name] for name in CHECKS}
        if isinstance(same_results, str):
            return failure(same_results)
        if self.execution:
            passed["results"] = same_results
        parts = {name: Score(value=float(own), status="ok" if own else "wrong") for name, own in passed.items()}
        failed = [name for name, own in passed.items() if not own]
        return Score(
            value=float(sum(passed.values())) if self.partial else float(not failed),
            status="wrong" if failed else "ok",
            answer=text,
            explanation=f"failed: {', '.join(failed)}" if failed else "all checks passed",
            parts=parts,
        )

    async def _same_results(self, tasks: Mapping[int, Task], outcomes: Mapping[Key, Outcome]) -> dict[Key, bool | str]:
        """Whether texts give the results of their source, of those that compile; or how the sandbox failed. The source
        is run once.
        """

        async def of(number: int, task: Task) -> dict[Key, bool | str]:
            own = [
                key
                for key, outcome in outcomes.items()
                if key[0] == number and outcome.how == "ok" and outcome.value["names"]
            ]
            if not own:
                return {}
            function = task.fields.get("function", "f")
            calls = [f"{function}({', '.join(map(repr, row))})" for row in task.fields["inputs"]]
            pool, texts = open_pool(self.weakest), [text for _, text in own]
            found = await same_results(task.fields["source"], texts, calls, pool, self.limits)
            return {
                key: f"task '{task.key}': {each}" if isinstance(each, str) else each
                for key, each in zip(own, found, strict=True)
            }

        found = await asyncio.gather(*(of(number, task) for number, task in tasks.items()))
        return {key: same for each in found for key, same in each.items()}

    def _call(self, task: Task, text: str) -> dict[str, str]:
        return {"text": text, "source": task.fields["source"], "function": task.fields.get("function", "f")}

    def _fault(self, task: Task) -> str:
        """Why a task cannot be scored; empty if it can."""
        source, function = task.fields.get("source"), task.fields.get("function", "f")
        if not isinstance(source, str) or not isinstance(function, str) or not function.isidentifier():
            return "needs the fields source (a function in Python) and function (its name)"
        if not 0 < len(source) <= LONGEST:
            return f"has a source of {len(source)} characters; from 1 to {LONGEST} are allowed"
        inputs = task.fields.get("inputs")
        if self.execution and not (
            isinstance(inputs, list) and inputs and all(isinstance(row, list) for row in inputs)
        ):
            return "has no inputs, a list of argument lists, which execution compares results on"
        return ""

    @cached_property
    def _runner(self) -> Runner:
        limits = WorkerLimits(
            cpu_seconds=self.time_limit, wall_seconds=ON_THE_CLOCK * self.time_limit, memory_mib=self.memory_mib
        )
        return Runner(
            GRADER, {"parser": self.parser}, limits=limits, preload=("posttrain.grading.extracted_functions",)
        )

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the workers."""
        return {name: value for name, value in self.__dict__.items() if name != "_runner"}
