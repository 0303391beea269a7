"""The share of known wrong solutions that a suite of tests kills, and nothing if a correct one fails.

Source: detection rate and verifier accuracy of SAGA and TCGBench, arXiv:2507.06920: a solution is killed where some
test fails on it, and the suite verifies where all are killed. A suite that fails a correct solution has the reward 0,
so that one that rejects everything has nothing.

Before training the correct solutions of `references` tasks are compared: on the field ``inputs`` (lists of arguments),
else on inputs of the field ``domain`` (least and largest number, longest list or 0).

A task has the fields ``correct`` (two or more independent sources), ``wrong`` (one or more) and ``function`` (a name,
``f`` without the field). A test is a line ``assert f(1, [2]) == 3`` of the completion's last fenced block, or of the
completion: a call of the function with literals, and a literal. Only calls are run, and results are compared outside of
the sandbox; other lines are not run and do not count, so that the clock, the source of a solution and the exit cannot
be used. A copy of a test has no effect.

Differs: the paper evaluates suites by known solutions after they are written, and does not train by that.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.call_inputs import boundary_inputs, random_inputs
from posttrain.datasets.faulty_functions import constants
from posttrain.engines import wait_for
from posttrain.errors import TaskFault
from posttrain.grading.function_calls import Called, called_each
from posttrain.grading.programs import LONGEST, find_code
from posttrain.grading.references import MOST_CHECKED, check_each, unchecked
from posttrain.grading.suite_inputs import literal_of
from posttrain.grading.suites import NamedTest, named_tests, solutions_fault
from posttrain.grading.values import same
from posttrain.sandbox import Limits, Tier, open_pool
from posttrain.types import Group, Score, Task, Trajectory

COMPARED = 40
"""Calls on which the correct solutions of a task are compared."""
TOGETHER = 8
"""Most suites that are run in one sandbox, each with each solution in a process of its own."""


@dataclass(frozen=True, slots=True)
class _Suite:
    """The tests of a completion."""

    task: Task
    text: str
    tests: Sequence[NamedTest]
    ignored: int

    @property
    def calls(self) -> tuple[str, ...]:
        """What is run."""
        return tuple(test.call for test in self.tests)


@frozen
class Suite(Reward):
    """Rewards tests that kill wrong solutions and no correct one."""

    most: Annotated[int, Field(ge=1, le=1000)] = 100
    """Most tests that count, from the first."""
    partial: bool = True
    """Whether the share of killed solutions is the reward; otherwise all must be killed."""
    tolerance: NonNegativeFloat = 1e-9
    """Largest difference of two equal floating-point numbers, relative to the larger one."""
    references: NonNegativeInt = MOST_CHECKED
    """Most tasks whose correct solutions are compared before training; of more some, evenly spread."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of one solution, for all tests together."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which solutions may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the solutions."""
        return "python"

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` without one that is strong enough."""
        open_pool(self.weakest)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without two correct solutions that agree, and a wrong one."""
        for task in tasks:
            if fault := solutions_fault(task.fields):
                raise TaskFault(task.key, f"task '{task.key}' {fault}")

        def refuse(task: Task, fault: str) -> None:
            if fault:
                raise TaskFault(task.key, f"task '{task.key}' has correct solutions that disagree: {fault}")

        known = [task for task in tasks if _calls(task)]
        wait_for(check_each(known, self._disagreement, refuse, self.references))

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many tasks are not compared before training."""
        return unchecked(sum(bool(_calls(task)) for task in tasks), self.references)

    async def _disagreement(self, task: Task) -> str:
        """A call on which two correct solutions have different results; empty without one."""
        calls = _calls(task)
        pool, solutions = open_pool(self.weakest), task.fields["correct"]
        [found] = await called_each(solutions, [calls], pool, self.limits)
        for number, call in enumerate(calls):
            first, *others = (outcomes.get(number) for _, outcomes in found)
            for place, other in enumerate(others, 2):
                if other != first:
                    return f"{call[:80]} is {_in_words(first)} by the first, {_in_words(other)} by number {place}"
        return ""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each suite; the calls of equal ones of a task are run once, and several suites in one sandbox."""
        found: list[Score | _Suite] = [self._read(trajectory) for trajectory in group]
        waiting: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for place, own in enumerate(found):
            if isinstance(own, _Suite):
                waiting.setdefault((id(own.task), own.calls), []).append(place)
        batches = []
        for number in {task for task, _ in waiting}:
            own_keys = [key for key in waiting if key[0] == number]
            batches += [own_keys[at : at + TOGETHER] for at in range(0, len(own_keys), TOGETHER)]
        scores: dict[int, Score] = {}

        async def run(keys: Sequence[tuple[int, tuple[str, ...]]]) -> None:
            task = group.trajectories[waiting[keys[0]][0]].task
            solutions, suites = (*task.fields["correct"], *task.fields["wrong"]), [calls for _, calls in keys]
            outcomes = await called_each(solutions, suites, open_pool(self.weakest), self.limits)
            for key, own in zip(keys, outcomes, strict=True):
                for place in waiting[key]:
                    suite = found[place]
                    assert isinstance(suite, _Suite)
                    scores[place] = self._score(suite, own)

        await asyncio.gather(*map(run, batches))
        return [own if isinstance(own, Score) else scores[place] for place, own in enumerate(found)]

    def _read(self, trajectory: Trajectory) -> Score | _Suite:
        """The suite of a completion; its score where there is nothing to run."""
        task = trajectory.task
        if fault := solutions_fault(task.fields):
            return failure(f"task '{task.key}' {fault}")
        text = find_code(trajectory) or ""
        tests, ignored = named_tests(text[:LONGEST], str(task.fields.get("function", "f")), self.most)
        if not tests:
            return Score(value=0.0, status="wrong", explanation="no test: needs lines such as assert f(1) == 2")
        return _Suite(task=task, text=text, tests=tests, ignored=ignored)

    def _score(self, suite: _Suite, found: Sequence[Called]) -> Score:
        task, text, tests, ignored = suite.task, suite.text, suite.tests, suite.ignored
        correct, wrong = task.fields["correct"], task.fields["wrong"]
        failed = next((result for result, _ in found if result.outcome == "sandbox_error"), None)
        if failed is not None:
            return failure(f"the sandbox failed: {failed.explanation}")
        passes = [[self._same(outcomes.get(n), test) for n, test in enumerate(tests)] for _, outcomes in found]
        for own in passes[: len(correct)]:
            if not all(own):
                first = tests[own.index(False)].call[:80]
                return Score(value=0.0, status="wrong", explanation=f"{first} fails a correct solution")
        killed = sum(not all(own) for own in passes[len(correct) :])
        share = killed / len(wrong)
        value = share if self.partial else float(killed == len(wrong))
        explanation = f"{len(tests)} tests kill {killed} of {len(wrong)} wrong solutions; {ignored} lines are no test"
        explanation += f"; at most {self.most} tests are run" if len(tests) == self.most else ""
        explanation += f"; of the first {LONGEST} characters" if len(text) > LONGEST else ""
        parts = {"killed": Score(value=share, status="ok"), "tests": Score(value=float(len(tests)), status="ok")}
        status: Any = "ok" if killed == len(wrong) else "wrong"
        return Score(value=value, status=status, answer=text, explanation=explanation, parts=parts)

    def _same(self, outcome: Any, test: NamedTest) -> bool:
        if not isinstance(outcome, list) or len(outcome) != 2 or outcome[0] != "value":
            return False
        return same(outcome[1], test.expected, tolerance=self.tolerance)


def _calls(task: Task) -> list[str]:
    """Calls on which correct solutions must agree; none where a task has no inputs and no domain."""
    name, inputs = task.fields.get("function", "f"), task.fields.get("inputs")
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        rows = [row for row in inputs if isinstance(row, list | tuple)]
        return [f"{name}({', '.join(map(repr, row))})" for row in rows[:COMPARED]]
    match task.fields.get("domain"):
        case [int() as low, int() as high, int() as longest] if low <= high and longest >= 0:
            rng, half, domain = Random(f"suite:{task.key}"), COMPARED // 2, (low, high, longest)
            drawn = random_inputs(domain, half, rng)
            drawn += boundary_inputs(domain, constants(task.fields["correct"][0]), half, rng)
            return [f"{name}({text})" for text in dict.fromkeys(drawn)]
    return []


def _in_words(outcome: Any) -> str:
    """An outcome of a call."""
    match outcome:
        case ["value", tree]:
            return (literal_of(tree) or "another value")[:60]
        case ["raised", str() as name]:
            return f"a {name[:40]}"
    return "no result"
