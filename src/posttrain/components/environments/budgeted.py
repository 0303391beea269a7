"""A question with a calculator and a budget: calls and proposals count together, and the first right proposal wins.

A turn that has ``<solution>`` proposes the text between the tags; any other turn calls the calculator with what stands
between ``<execute>`` tags (several bodies are joined by line breaks, and each line is evaluated). Three counters:
proposals, raised before anything is read, so that an unclosed tag costs one; calls, whose errors are answers like
others; and turns without a body, which are invalid. Their sum is the number of steps. After each turn, in this order: a
right proposal ends in success; `proposals` used up is a failure; `steps` used up is a failure. An observation has the
answer, what is left, and the advice to propose where one step is left. Feedback follows only while the episode goes on.

Source: MINT, arXiv:2309.10691, and its released code: budgets of k steps and 2 proposals, 1 proposal for k = 1. Its
rule for answers is `match=lenient`: within 5 % of a number, or else the reference anywhere in the answer, in lower
case.

Differs: the tool is a calculator for whole numbers, not a Python shell. Feedback is a rule (the sign of the error, or
GOOD and BAD), not a language model. In the release an exception of the tool itself costs no step; here all turns count.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.errors import UserError
from posttrain.grading.expressions import evaluate
from posttrain.types import Task

SILENT: Final = "No output."
LONGEST: Final = 2000
"""Characters of an answer of the tool."""


@frozen
class Budgeted(Environment):
    """Takes calls and proposals within a budget."""

    steps: Annotated[int, Field(ge=1, le=1000)] = 5
    """k: calls, proposals and invalid turns in all."""
    proposals: Annotated[int, Field(ge=1, le=1000)] = 2
    """Proposals among them."""
    feedback: Literal["none", "verdict", "sign"] = "none"
    """What follows a wrong proposal: nothing, ``BAD`` (and ``GOOD`` after a call), or whether it is too small or too
    large."""
    malformed: Literal["counted", "free"] = "counted"
    """Whether a turn without a body costs a step; free ones are at most as many as there are steps."""
    match: Literal["exact", "lenient"] = "exact"
    """How a proposal is compared with the reference answer; ``lenient`` is that of the benchmark, and easily fooled."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have an answer."""
        for task in tasks:
            if not (task.answer or "").strip():
                raise UserError(f"task {task.key} has no answer to compare with; give its row an 'answer' column")

    @property
    def stop(self) -> tuple[str, ...]:
        """The ends of a call and of a proposal."""
        return ("</execute>", "</solution>")

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A question of which nothing was tried. Nothing is random."""
        return Trial(self, (task.answer or "").strip())


class Trial(Instance):
    """One episode."""

    def __init__(self, rules: Budgeted, answer: str) -> None:
        self._rules, self._answer = rules, answer
        self._proposed, self._called, self._invalid = 0, 0, 0
        self._solved = False

    def begin(self) -> Observation:
        """The budget."""
        return self._observation("")

    async def step(self, action: str) -> Outcome:
        """Take a proposal or a call."""
        bodies = re.findall(r"<(solution|execute)>(.*?)</\1>", action, re.DOTALL)
        proposing = "<solution>" in action
        own = "\n".join(body.strip() for tag, body in bodies if (tag == "solution") == proposing)
        if proposing:
            self._proposed += 1
            self._solved = agrees(own, self._answer, lenient=self._rules.match == "lenient")
            text = "" if self._solved else "Wrong."
        elif own:
            self._called += 1
            text = "\n".join(_result(line) for line in own.split("\n"))[:LONGEST] or SILENT
        else:
            self._invalid += 1
            text = "No call and no proposal."
        over = self._solved or self._proposed >= self._rules.proposals or self._used >= self._rules.steps
        if not over:
            text += self._feedback(own if proposing else None)
        return Outcome(observation=self._observation(text), done=over, valid=bool(own), left=self._left())

    async def solution(self) -> str:
        """The answer."""
        return f"<solution>{self._answer}</solution>"

    def verdict(self) -> Verdict:
        """Whether a proposal was right."""
        return Verdict(
            value=float(self._solved),
            solved=self._solved,
            explanation=f"{self._used} steps, {self._proposed} proposals",
        )

    def measures(self) -> Mapping[str, float]:
        """The three counters."""
        return {
            "proposals": float(self._proposed),
            "calls": float(self._called),
            "invalid": float(self._invalid),
        }

    @property
    def _used(self) -> int:
        free = self._rules.malformed == "free"
        return self._proposed + self._called + max(0, self._invalid - (self._rules.steps if free else 0))

    def _feedback(self, proposed: str | None) -> str:
        """What is added to an observation while the episode goes on."""
        if self._rules.feedback == "none":
            return ""
        if self._rules.feedback == "verdict":
            return " BAD" if proposed is not None else " GOOD"
        number, right = (None if text is None else _number(text) for text in (proposed, self._answer))
        if number is None or right is None:
            return ""
        return " Too small." if number < right else " Too large."

    def _left(self) -> dict[str, int]:
        """Calls that may follow, or proposals: each is a step."""
        steps = max(self._rules.steps - self._used, 0)
        return {"calls": steps, "proposals": min(self._rules.proposals - self._proposed, steps)}

    def _observation(self, text: str) -> Observation:
        left = self._rules.steps - self._used
        tries = self._rules.proposals - self._proposed
        advice = " Propose an answer." if left == 1 else ""
        return Observation(text=f"\n{text}{' ' if text else ''}{left} steps, {tries} proposals left.{advice}\n")


def agrees(proposed: str, answer: str, *, lenient: bool = False) -> bool:
    """Whether a proposal is the answer: the same number, or the same text without case and space around it."""
    number, right = _number(proposed), _number(answer)
    if number is not None and right is not None:
        return abs(number - right) <= 0.05 * abs(right) if lenient else number == right
    plain, wanted = proposed.strip().lower(), answer.strip().lower()
    return wanted in plain if lenient else plain == wanted


def _number(text: str) -> float | None:
    try:
        return float(text.strip()) if len(text) <= 100 and re.fullmatch(r"\s*-?\d+(\.\d+)?\s*", text) else None
    except ValueError:
        return None


def _result(line: str) -> str:
    """The value of an expression; what is wrong with it otherwise."""
    if not line.strip():
        return ""
    value = evaluate(line.strip())
    return "Error." if value is None else str(value)
