r"""A search and a calculator in tags, which may be mixed in one answer, with a limit on calls.

``<search>kiwi</search>`` is answered by what the task's field ``facts`` has for kiwi, ``<python>47+5</python>`` by the
value of the expression, each as ``<result>\n...\n</result>``; what cannot be answered is answered by ``error``. A turn
that ends otherwise ends the rollout, and so does a call beyond `calls`, which is not answered.

The optimum (`fewest_calls`) is that of a player who copies: it searches for what the question names, and its program is
one operation on two numbers of the question and of results. Regret is the turns beyond the fewest of these calls and an
answer, where a rollout without the right answer counts as one turn more than the limit. A player who knows the answer
needs no call, and has no regret either. Where no such calls show the answer, regret is not measured.

Source: Tool-Star, arXiv:2505.16410, and its released rollout: it stops at the closing tags, appends the result, and
ends the answer at the fourth call.

Differs: the search is a table and the program an expression.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations, product
from typing import Annotated, Any, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.components.environments._extra_turns import extra_turns
from posttrain.datasets.describe import prompt_text
from posttrain.grading.expressions import evaluate
from posttrain.grading.extraction import extract
from posttrain.types import Task

TOOLS: Final = ("search", "python")
LONGEST: Final = 200
"""Characters of a result."""
NUMBERS: Final = 8
"""Most numbers of a question that a program is tried with."""


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
        return Desk(self, task, facts if isinstance(facts, Mapping) else {})


class Desk(Instance):
    """The tools in one rollout."""

    def __init__(self, rules: TwoTools, task: Task, facts: Mapping[str, Any]) -> None:
        self._rules, self._task, self._facts = rules, task, facts
        self._calls, self._turns, self._last = 0, 0, ""
        self._executed = dict.fromkeys(TOOLS, 0)

    async def step(self, action: str) -> Outcome:
        """Answer the call at the end of a turn, if there is one."""
        text = self._last = action.rstrip()
        self._turns += 1
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
        """Calls, for each tool those that were answered without an error, and the regret where an optimum is known."""
        own = {"calls": float(self._calls), **{tool: float(count) for tool, count in self._executed.items()}}
        question, answer = prompt_text(self._task), self._task.answer
        fewest = None if answer is None else fewest_calls(question, self._facts, answer, self._rules.calls)
        if fewest is None:
            return own
        limit = self._rules.calls + 1
        return own | {"regret": extra_turns(self._turns, solved=self._right, shortest=fewest + 1, horizon=limit)}

    @property
    def _right(self) -> bool:
        """Whether the last turn has the task's answer, in its tag or in a box."""
        found = extract(self._last, ("answer_tag", "boxed"))
        box = found and extract(found.text, ("boxed", "whole"))
        return box is not None and box.text == (self._task.answer or "").strip()

    def _result(self, tool: str, query: str) -> str | None:
        """The answer to a call; None for one that fails."""
        if tool == "search":
            return str(self._facts[query]) if query in self._facts else None
        value = evaluate(query)
        return None if value is None else str(value)


def fewest_calls(question: str, facts: Mapping[str, Any], answer: str, most: int) -> int | None:
    """The fewest calls with the answer as a result, for a player who copies; None where `most` do not suffice.

    A program is one operation on two numbers (the same one twice, too), of which at most `NUMBERS` are the question's.
    """
    named = [item for item in facts if str(item) in question][:NUMBERS]
    if any(str(facts[item]) == answer.strip() for item in named):
        return 1 if most >= 1 else None
    wanted = evaluate(answer)
    if wanted is None or str(wanted) != answer.strip():
        return None
    asked = [int(number) for number in re.findall(r"\b[0-9]{1,100}\b", question)][:NUMBERS]
    for searches in range(min(len(named), most - 1) + 1):
        for items in combinations(named, searches):
            found = [int(value) for item in items if re.fullmatch("[0-9]{1,100}", value := str(facts[item]))]
            if any(_one_operation(a, b, wanted) for a, b in product({*asked, *found}, repeat=2)):
                return searches + 1
    return None


def _one_operation(a: int, b: int, wanted: Fraction) -> bool:
    """Whether one of + - * / gives a number."""
    return wanted in (a + b, a - b, a * b) or (b != 0 and a == wanted * b)
