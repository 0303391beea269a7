"""A calculator tool that the model may call: ``<<47+35>>`` is answered by ``82``.

A turn that ends with a call is answered by the call's value; a turn that ends otherwise is the last one. Expressions
are whole numbers with + - * / and brackets, evaluated exactly by `posttrain.grading.expressions`. The final answer is
scored by a reward component, not here.

Source: calculator annotations of GSM8K, Cobbe et al. 2021, arXiv:2110.14168, appendix C.

Differs: the annotations there stand after the written expression and its equals sign (``47+35=<<47+35=82>>82``), and
the calculator writes what follows the sign.
"""

from collections.abc import Mapping

from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.grading.expressions import evaluate
from posttrain.types import Task


@frozen
class Calculator(Environment):
    """Answers calls of a calculator."""

    opening: str = Field(default="<<", min_length=1)
    """Starts a call."""
    closing: str = Field(default=">>", min_length=1)
    """Ends a call, and the turn."""
    invalid_penalty: NonNegativeFloat = 0.0
    """Subtracted from the reward of a turn whose call cannot be evaluated."""
    digits: PositiveInt = 20
    """Longest result in characters; a longer one is answered as an error."""

    @property
    def stop(self) -> tuple[str, ...]:
        """The end of a call."""
        return (self.closing,)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A calculator with no calls so far."""
        return Desk(self)


class Desk(Instance):
    """A calculator in one rollout."""

    def __init__(self, rules: Calculator) -> None:
        self._rules = rules
        self._calls, self._failed = 0, 0

    async def step(self, action: str) -> Outcome:
        """Answer the call at the end of a turn, if there is one."""
        _, found, call = action.rstrip().rpartition(self._rules.opening)
        if not found or not call.endswith(self._rules.closing):
            return Outcome(done=True)
        self._calls += 1
        result = self._result(call.removesuffix(self._rules.closing))
        if result is None:
            self._failed += 1
            return Outcome(observation=Observation(text="error"), reward=-self._rules.invalid_penalty, valid=False)
        return Outcome(observation=Observation(text=result))

    def measures(self) -> Mapping[str, float]:
        """Numbers of calls, and of calls that could not be evaluated."""
        return {"calls": float(self._calls), "failed_calls": float(self._failed)}

    def _result(self, expression: str) -> str | None:
        """The value of an expression as text; None where it has none, or one that is too long."""
        value = evaluate(expression)
        written = "" if value is None else str(value)
        return written if 0 < len(written) <= self._rules.digits else None
