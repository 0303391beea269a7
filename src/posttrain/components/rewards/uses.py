"""A rule on the text of a Python program: what it defines and calls, and what it must not name. Nothing is run.

Source: the rule-based linter of AutoTriton, arXiv:2507.05687, section 3.3, by which a program has no reward that calls
the library in place of a kernel. Its rules are not published; these are ours.

    posttrain score "{kind: uses, define: [triton.jit], imports: [triton, triton.language, torch]}" answers.jsonl

The function of the task (the field ``function``, ``f`` without it) must call a function that has one of the decorators
`define`, itself or through other functions of the program: ``k[grid](x)`` counts as a call. It must call all names of
`call`, and no name of `forbid` may be in the program: as a name, an attribute, an import or a text. Only modules of
`imports` are imported. Names that begin with ``_``, and those that reach others by their text (``getattr``, ``exec``,
...), are refused always.

The program is the last fenced block of the completion, or all of it. It is parsed in workers that can be killed. A rule
on texts sees no values: a program that calls a kernel and returns something else keeps to it (`rewards/kernel`).
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.program_names import open_rules
from posttrain.grading.programs import LONGEST, find_code
from posttrain.grading.workers import Limits, Runner, inside_worker
from posttrain.types import Group, Score

GRADER = "posttrain.grading.program_names:open_rules"
ON_THE_CLOCK = 30.0
"""Seconds on the clock for a second of processor time."""


@frozen
class Uses(Reward):
    """Rewards programs that keep to a rule on what they define, call and name."""

    define: tuple[str, ...] = ()
    """Decorators, of which one must be on a function that is called; none requires no such function."""
    call: tuple[str, ...] = ()
    """Names that must be called, such as ``tl.load``."""
    forbid: tuple[str, ...] = ()
    """Names that must not be there, such as ``reference`` or ``torch.matmul``."""
    imports: tuple[str, ...] = ()
    """Modules that may be imported."""
    time_limit: Annotated[float, Field(gt=0.0, le=600.0)] = 1.0
    """Seconds of processor time for one text."""
    memory_mib: Annotated[int, Field(ge=64, le=1 << 20)] = 512
    """Memory for one text."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Check each text, equal ones of a task once."""
        texts = [(find_code(t) or "")[: LONGEST + 1] for t in group]
        names = [_name(t.task.fields.get("function")) for t in group]
        keys = list(zip(names, texts, strict=True))
        asked = [key for key in dict.fromkeys(keys) if key[0] and key[1] and len(key[1]) <= LONGEST]
        found = dict(zip(asked, await self._checked([self._call(*key) for key in asked]), strict=True))
        return [_scored(t.task.key, key, found) for t, key in zip(group, keys, strict=True)]

    async def _checked(self, calls: Sequence[dict[str, Any]]) -> list[Score]:
        if inside_worker():
            rules = open_rules(None)
            return [_of(rules(call)) for call in calls]
        found = []
        for outcome in await self._runner.run(calls) if calls else []:
            if outcome.how in ("infra_error", "unstarted"):
                found.append(failure(f"the text was not read: {outcome.explanation}"))
            else:
                found.append(_of(outcome.value if outcome.how == "ok" else f"reading it was ended: {outcome.how}"))
        return found

    def _call(self, function: str, text: str) -> dict[str, Any]:
        rule = {"define": list(self.define), "call": list(self.call), "forbid": list(self.forbid)}
        return {"text": text, "rule": {**rule, "imports": list(self.imports), "function": function}}

    @cached_property
    def _runner(self) -> Runner:
        limits = Limits(
            cpu_seconds=self.time_limit, wall_seconds=self.time_limit * ON_THE_CLOCK, memory_mib=self.memory_mib
        )
        return Runner(GRADER, limits=limits, preload=("posttrain.grading.program_names",))


def _name(function: Any) -> str:
    """The name of the entry point; empty for what is no name."""
    return "f" if function is None else function if isinstance(function, str) and function.isidentifier() else ""


def _of(fault: str) -> Score:
    if fault:
        return Score(value=0.0, status="wrong", explanation=fault)
    return Score(value=1.0, status="ok", explanation="it keeps to the rule")


def _scored(task: str, key: tuple[str, str], found: dict[tuple[str, str], Score]) -> Score:
    name, text = key
    if not name:
        return failure(f"task '{task}' has a 'function' that is no name")
    nothing = "no program" if not text else f"longer than {LONGEST} characters"
    return found.get(key) or Score(value=0.0, status="wrong", explanation=nothing)
