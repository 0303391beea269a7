"""Python functions, tested by calls in a sandbox whose results are compared outside of it.

A task's field ``tests`` is a list of ``assert f(1) == 2`` (MBPP, HumanEval) or of ``{"call": "f(1)", "expected": 2}``.
Only the calls enter the sandbox. Results are compared by type and value, so a program that claims success, exits early
with code 0 or redefines equality is not rewarded without the expected values.

Source: the tests of MBPP (Austin et al. 2021, arXiv:2108.07732) and HumanEval (Chen et al. 2021, arXiv:2107.03374).

Before training, reference programs are run against their own tests (`references`): the field ``reference``
or the answer, where it is a program that defines something.

Differs: an ``assert`` that does not compare one call with a literal cannot be split into a call and an expected value.
Its task gives status ``error``: to run the whole ``assert`` in the sandbox would let programs cheat.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.engines import wait_for
from posttrain.errors import TaskFault
from posttrain.grading.function_calls import called
from posttrain.grading.programs import broken, how_it_ended, score_each
from posttrain.grading.references import MOST_CHECKED, check_references, has_reference, reference_of, unchecked
from posttrain.grading.values import Tree, literal, same, tree_of
from posttrain.sandbox import Limits, Tier, open_pool
from posttrain.types import Group, Score, Task, Trajectory


@dataclass(frozen=True, slots=True)
class Check:
    """One call, and the tree of its expected result."""

    call: str
    expected: Tree
    loose: bool


@frozen
class PythonTests(Reward):
    """Rewards functions that return the expected values."""

    partial: bool = False
    """Whether the share of passed tests is rewarded; otherwise all must pass."""
    tolerance: NonNegativeFloat = 1e-9
    """Largest difference of two equal floating-point numbers, relative to the larger one; 0 is exact."""
    right: float = 1.0
    """Reward when all tests pass."""
    wrong: float = 0.0
    """Reward when none passes, or not all without `partial`."""
    missing: float = 0.0
    """Reward of a completion without a program."""
    references: NonNegativeInt = MOST_CHECKED
    """Most reference programs that are run before training; of more tasks some, evenly spread."""
    limits: Limits = Limits(cpu_s=1.0)
    """Limits of one program, for all its tests together."""
    weakest: Tier = "cgroup"
    """The weakest sandbox in which programs may be run: see ``posttrain doctor``."""

    @property
    def runs(self) -> str:
        """The language of the programs."""
        return "python"

    def prepare(self) -> None:
        """Open the sandbox. Raises `UserError` without one that is strong enough."""
        open_pool(self.weakest)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a test that can be read, or whose reference program fails one."""
        for task in tasks:
            try:
                checks_of(task.fields.get("tests"))
            except ValueError as error:
                raise TaskFault(task.key, f"task '{task.key}' {error}") from None
        wait_for(check_references([t for t in tasks if _defines(reference_of(t))], self._score, self.references))

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many references are not run before training."""
        return unchecked(sum(_defines(reference_of(task)) and has_reference(task) for task in tasks), self.references)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Run each program once with all calls, and compare the results."""
        return await score_each(group, self._score, self.missing, _fault)

    async def _score(self, trajectory: Trajectory, code: str) -> Score:
        checks = checks_of(trajectory.task.fields["tests"])
        calls = [check.call for check in checks]
        result, answers = await called(code, calls, open_pool(self.weakest), self.limits)
        if error := broken(result):
            return error
        failed = [n for n, check in enumerate(checks) if not self._passes(answers.get(n), check)]
        if not failed:
            return Score(value=self.right, status="ok", answer=code, explanation=f"passes {len(checks)} tests")
        passed = 1 - len(failed) / len(checks)
        value = self.wrong + (self.right - self.wrong) * passed * self.partial
        first = checks[failed[0]].call[:80]
        outcome = _in_words(answers.get(failed[0])) or how_it_ended(result)
        explanation = f"fails {len(failed)} of {len(checks)} tests; {first} {outcome}"
        return Score(value=value, status="wrong", answer=code, explanation=explanation)

    def _passes(self, answer: Any, check: Check) -> bool:
        if not isinstance(answer, list) or len(answer) != 2 or answer[0] != "value":
            return False
        return same(answer[1], check.expected, tolerance=self.tolerance, loose=check.loose)


def _defines(code: str) -> bool:
    """Whether a text is a program that defines something, and not for example the value of a call."""
    try:
        parsed = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "def " in code
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.Import) for node in parsed)


def checks_of(tests: Any) -> list[Check]:
    """The tests of a task. Raises `ValueError` with what is wrong with them."""
    if not isinstance(tests, Sequence) or isinstance(tests, str) or not tests:
        raise ValueError("has no field 'tests', a list of asserts or of mappings with 'call' and 'expected'")
    return [_check(test) for test in tests]


def _check(test: Any) -> Check:
    if isinstance(test, Mapping) and isinstance(test.get("call"), str) and "expected" in test:
        return Check(test["call"], tree_of(test["expected"]), loose=True)
    if not isinstance(test, str):
        raise ValueError(f"has the test {test!r:.80}, which is neither an assert nor has 'call' and 'expected'")
    try:
        parsed = ast.parse(test.strip()).body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"has the test {test[:80]!r}: {error}") from None
    match parsed:
        case [ast.Assert(test=ast.Compare(left=call, ops=[ast.Eq() | ast.Is()], comparators=[expected]))]:
            return Check(ast.unparse(call), tree_of(literal(ast.unparse(expected))), loose=False)
        case [ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=call))]:
            return Check(f"bool({ast.unparse(call)})", tree_of(False), loose=False)
        case [ast.Assert(test=ast.Call() as call)]:
            return Check(f"bool({ast.unparse(call)})", tree_of(True), loose=False)
    raise ValueError(f"has the test {test[:80]!r}; only 'assert CALL == VALUE' can be split into what goes in and out")


def _fault(trajectory: Trajectory) -> str:
    try:
        checks_of(trajectory.task.fields.get("tests"))
    except ValueError as error:
        return str(error)
    return ""


def _in_words(answer: Any) -> str:
    if not isinstance(answer, list) or len(answer) != 2:
        return ""
    return f"raises {answer[1]!r:.60}" if answer[0] == "raised" else f"gives {answer[1]!r:.120}"
