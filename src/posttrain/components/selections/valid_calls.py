"""Keeps the tasks whose reference calls are valid: by their syntax trees and, with a judge, by its verdict.

Source: the two-stage preparation of data of FunRL, arXiv:2508.05118: rounds of evaluation by a language model, then
validation of the syntax trees. A reference is valid if it can be read (`posttrain.grading.calls`) and, where the row
has a field ``tools``, calls only these, with every required argument and no unknown one. A tool is a JSON schema of a
function, as chat templates take it, or ``{name, required, optional}``.

Differs: the rounds' prompts are not published. Here a judge answers the same question in each round, and a task stays
if all its answers begin with "yes". Trees come first, so that no judge reads what is not valid anyway.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.errors import AlarmStop
from posttrain.grading.calls import NoCalls, parse_reference
from posttrain.grading.schemas import tools_fault
from posttrain.types import Task

QUESTION = (
    "Request:\n{prompt}\n\nCalls:\n{answer}\n\nDo these function calls do exactly what the request asks for, with the "
    "right arguments? Answer yes or no."
)


@frozen
class ValidCalls(Selection):
    """Drops tasks whose reference is not valid."""

    judge: str | None = None
    """Role of a model that judges references; None validates syntax trees only."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 1
    """Answers of the judge about each task; all must be yes."""
    question: str = QUESTION
    """The prompt of the judge, with ``{prompt}`` and ``{answer}``."""
    sampling: Sampling = Sampling(max_tokens=16)
    """How the judge writes."""

    @property
    def roles(self) -> frozenset[str]:
        """The judge, if there is one."""
        return frozenset() if self.judge is None else frozenset({self.judge})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task what is wrong with it; empty if nothing is."""
        return list(await asyncio.gather(*(self._fault(task, samplers) for task in tasks)))

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks without a fault. Raises `AlarmStop` if there are none."""
        kept = [task for task, fault in zip(tasks, measured, strict=True) if not fault]
        faults = [f"{task.key}: {fault}" for task, fault in zip(tasks, measured, strict=True) if fault]
        if not kept:
            raise AlarmStop(f"no task has valid calls as its answer. The first one, {faults[0] if faults else 'none'}")
        first = f"; the first one that is dropped, {faults[0]}" if faults else ""
        return Chosen(tasks=kept, summary=f"{len(kept)} of {len(tasks)} tasks have valid calls{first}")

    async def _fault(self, task: Task, samplers: Mapping[str, Sampler]) -> str:
        fault = tree_fault(task)
        if fault or self.judge is None:
            return fault
        judge = sampler_of(self.judge, samplers, "the valid_calls selection prompts")
        prompt = task.prompt if isinstance(task.prompt, str) else "\n".join(m["content"] for m in task.prompt)
        question = self.question.replace("{prompt}", prompt).replace("{answer}", task.answer or "")
        answers = await judge.write(question, self.rounds, self.sampling)
        no = [answer for answer in answers if not answer.strip().lower().startswith("yes")]
        return f"the judge '{self.judge}' answered {no[0].strip()[:40]!r}" if no else ""


def tree_fault(task: Task) -> str:
    """What is wrong with a task's reference by its syntax tree and its tools; empty if nothing is."""
    try:
        calls = parse_reference(task.answer or "")
    except NoCalls as error:
        return f"the answer {error}"
    given = task.fields.get("tools")
    if not given:
        return ""
    if fault := tools_fault(given):
        return fault
    try:
        tools = dict(map(_signature, given))
    except (TypeError, KeyError, AttributeError):
        return "the field 'tools' is no list of functions"
    for call in calls:
        if call.name not in tools:
            return f"'{call.name}' is not among the tools"
        required, known = tools[call.name]
        if missing := sorted(required - call.arguments.keys()):
            return f"'{call.name}' lacks the argument '{missing[0]}'"
        if unknown := sorted(call.arguments.keys() - known):
            return f"'{call.name}' has no argument '{unknown[0]}'"
    return ""


def _signature(tool: Mapping[str, Any]) -> tuple[str, tuple[set[str], set[str]]]:
    """Name of a tool, its required arguments and all of them."""
    function = tool.get("function", tool)
    if "parameters" in function:
        schema = function["parameters"]
        return function["name"], (set(schema.get("required", ())), set(schema.get("properties", {})))
    required = set(function.get("required", ()))
    return function["name"], (required, required | set(function.get("optional", ())))
