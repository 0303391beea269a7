r"""A search and a calculator in tags, which may be mixed in one answer, with a limit on calls.

``<search>kiwi</search>`` is answered by what the task's field ``facts`` has for kiwi, ``<python>47+5</python>`` by the
value of the expression, each as ``<result>\n...\n</result>``; what cannot be answered is answered by ``error``. A turn
that ends otherwise ends the rollout, and so does a call beyond `calls`, which is not answered.

Source: Tool-Star, arXiv:2505.16410, and its released rollout: it stops at the closing tags, appends the result, and
ends the answer at the fourth call.

Differs: the search is a table and the program an expression.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.grading.expressions import evaluate
from posttrain.types import Task

TOOLS: Final = ("search", "python")
LONGEST: Final = 200
"""Characters of a result."""


@frozen
class TwoTools(Environment):
    """Answers calls of two tools."""

    calls: Annotated[int, Field(ge=1, le=1000)] = 3
    """Calls that are answered in a rollout."""

    @property
    def stop(self) -> tuple[str, ...]:
        """The closing tags."""
        return tuple(f"</{tool}>" for tool in TOOLS)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """Tools without calls so far. Nothing is random."""
        facts = task.fields.get("facts")
        return Desk(self, facts if isinstance(facts, Mapping) else {})


class Desk(Instance):
    """The tools in one rollout."""

    def __init__(self, rules: TwoTools, facts: Mapping[str, Any]) -> None:
        self._rules, self._facts = rules, facts
        self._calls = 0
        self._executed = dict.fromkeys(TOOLS, 0)

    async def step(self, action: str) -> Outcome:
        """Answer the call at the end of a turn, if there is one."""
        text = action.rstrip()
        tool = next((tool for tool in TOOLS if text.endswith(f"</{tool}>")), None)
        self._calls += tool is not None
        if tool is None or self._calls > self._rules.calls:
            return Outcome(done=True, valid=tool is None)
        opened = re.search(rf"<{tool}>((?:(?!</?{tool}>).)*)</{tool}>\Z", text, re.DOTALL)
        result = None if opened is None else self._result(tool, opened[1].strip())
        self._executed[tool] += result is not None
        seen = Observation(text=f" <result>\n{'error' if result is None else result[:LONGEST]}\n</result>")
        return Outcome(observation=seen, valid=result is not None)

    def measures(self) -> Mapping[str, float]:
        """Calls, and for each tool those that were answered without an error."""
        return {"calls": float(self._calls), **{tool: float(count) for tool, count in self._executed.items()}}

    def _result(self, tool: str, query: str) -> str | None:
        """The answer to a call; None for one that fails."""
        if tool == "search":
            return str(self._facts[query]) if query in self._facts else None
        value = evaluate(query)
        return None if value is None else str(value)
