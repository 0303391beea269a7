"""How near an input comes to a line of a program: guards that it passes, and the distance to the next one.

Source: R1-Fuzz, arXiv:2509.20384, of which abstract and notes could be read: the input is run on the instrumented
target and rewarded by the distance between what was executed and the line. Formula and treatment of crashes were not
found; what follows is our own form, that of search-based testing (`posttrain.grading.branches`).

    value = 1 where the line is reached, also if the program then crashes or hangs
            0 for what is no input, or not of the number that the function takes
            (passed + .999 / (1 + d)) / n otherwise

n guards are around the line, `passed` of them were satisfied from the outermost on, d is the distance of the next one;
its term is left out where that was not evaluated. ``credit: passed`` leaves it out always, ``target`` gives 0 then.

A task has the fields ``source`` (Python), ``function`` (``f`` without the field) and ``line`` (that should be reached,
from 1). The input is the last line of the completion, after the last `mark`: literals with commas between them, or
numbers with spaces, one for each parameter. Programs run in the sandbox with at most `ticks` rounds of loops; those
that hang before the line have the value of what they had passed. Crashes and hangs are parts of the score and have no
reward.
"""

import ast
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.branches import Instrumented, Run, credit, instrumented, run_of
from posttrain.grading.extraction import shown
from posttrain.grading.function_calls import called
from posttrain.sandbox import Limits, Tier, open_pool
from posttrain.types import Group, Score, Task, Trajectory

LONGEST = 2000
"""Most characters of an input."""
_NUMBERS = re.compile(r"[-+0-9.eE\s]+")


@frozen
class BranchDistance(Reward):
    """Rewards inputs by how far they get to a line."""

    credit: Literal["distance", "passed", "target"] = "distance"
    """What is rewarded before the line is reached."""
    mark: Annotated[str, Field(min_length=1)] = "####"
    """What stands before the input."""
    ticks: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Most rounds of loops and calls of functions."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of the inputs of a group together."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run: see ``posttrain doctor``."""

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` without one that is strong enough."""
        open_pool(self.weakest)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a program and a line of it."""
        for task in tasks:
            try:
                program_of(task)
            except UserError as error:
                raise TaskFault(task.key, f"task '{task.key}': {error}") from None

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Run the inputs of each task, equal ones once."""
        tasks = {id(t.task): t.task for t in group}
        inputs = [self._input(trajectory) for trajectory in group]
        runs: dict[tuple[int, str], Run | str] = {}
        for key, task in tasks.items():
            given = {repr(own): own for own, t in zip(inputs, group, strict=True) if own is not None and t.task is task}
            runs |= {(key, name): run for name, run in (await self._runs(task, given)).items()}
        found = []
        for trajectory, own in zip(group, inputs, strict=True):
            run = runs.get((id(trajectory.task), repr(own))) if own is not None else None
            found.append(self._score(trajectory, own, run))
        return found

    def _input(self, trajectory: Trajectory) -> tuple[Any, ...] | None:
        """The literals of the last line; None for anything else."""
        if trajectory.stop_reason == "length":
            return None
        text = trajectory.completion[-LONGEST:].rpartition(self.mark)[2].strip().rpartition("\n")[2]
        return literals(text)

    async def _runs(self, task: Task, given: dict[str, tuple[Any, ...]]) -> dict[str, Run | str]:
        """What each input does, or why it could not be seen, by the input's name."""
        try:
            program = program_of(task)
        except UserError as error:
            return dict.fromkeys(given, f"task '{task.key}': {error}")
        found: dict[str, Run | str] = {}
        left = list(given)
        while left:
            calls = [program.call(given[name], self.ticks) for name in left]
            result, outcomes = await called(program.code, calls, open_pool(self.weakest), self.limits)
            if result.outcome == "sandbox_error":
                return found | dict.fromkeys(left, f"the sandbox failed: {result.explanation}")
            done = 0
            while done < len(left) and done in outcomes:
                found[left[done]] = _run_of(outcomes[done], program)
                done += 1
            if done < len(left):  # it ended the program, or took all the time: no trace of it is left
                found[left[done]] = Run("hung", False, (None,) * program.guards)
                done += 1
            left = left[done:]
        return found

    def _score(self, trajectory: Trajectory, given: tuple[Any, ...] | None, run: Run | str | None) -> Score:
        if given is None:
            try:
                program_of(trajectory.task)
            except UserError as error:
                return failure(f"task '{trajectory.task.key}': {error}")
            return Score(
                value=0.0,
                status="wrong",
                explanation=f"no input: literals in the last line, of at most {LONGEST} characters",
                parts=_parts(None),
            )
        if not isinstance(run, Run):
            return failure(run or "the input was not run")
        value = credit(run, self.credit)
        explanation = f"{shown(repr(given), 80)}: {run.end}, {run.passed} of {len(run.nearest)} guards"
        return Score(
            value=value,
            status="ok" if run.reached else "wrong",
            answer=", ".join(map(repr, given)),
            explanation=f"{explanation}, {'reached' if run.reached else 'not reached'}",
            parts=_parts(run),
        )


def literals(text: str) -> tuple[Any, ...] | None:
    """The literals of a line, with commas between them, or numbers with spaces; None where there are none."""
    text = text.strip().removesuffix(",")
    for form in (text, ", ".join(text.split()) if _NUMBERS.fullmatch(text) else ""):
        try:
            found = ast.literal_eval(f"({form},)") if form else None
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(found, tuple) and len(repr(found)) <= LONGEST:
            return found
    return None


def program_of(task: Task) -> Instrumented:
    """The instrumented program of a task. Raises `UserError` for fields of another form."""
    source, function, line = (task.fields.get(name) for name in ("source", "function", "line"))
    function = "f" if function is None else function
    if not isinstance(source, str) or not isinstance(function, str) or type(line) is not int:
        raise UserError(
            f"source is {source!r:.40}, function {function!r:.40} and line {line!r:.40}; the program, the name of its "
            "function and the number of a line are needed"
        )
    return instrumented(source, function, line)


def _run_of(outcome: Any, program: Instrumented) -> Run:
    """A run from what came out of the sandbox."""
    if not isinstance(outcome, list) or len(outcome) != 2 or outcome[0] == "raised":  # before the function began
        return Run("refused", False, (None,) * program.guards)
    tree = outcome[1]
    return run_of(tree[1] if isinstance(tree, list) and len(tree) == 2 else None, program.guards)


def _parts(run: Run | None) -> dict[str, Score]:
    """The number of satisfied guards, and whether the program crashed or hung."""
    crashed = run is not None and run.end not in ("returned", "refused", "hung", "unreadable")
    values = {
        "passed": 0.0 if run is None else float(run.passed),
        "crashed": float(crashed),
        "hung": float(run is not None and run.end == "hung"),
    }
    return {name: Score(value=value, status="ok") for name, value in values.items()}
