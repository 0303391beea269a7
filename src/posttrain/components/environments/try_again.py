"""A question that may be answered again: a wrong answer gets the feedback that it is wrong, and nothing else.

Source: Liu et al. 2025 (UFO, "A Simple 'Try Again' Can Elicit Multi-Turn LLM Reasoning"), arXiv:2507.14295, and its
released code: up to 5 answers. A correct answer k (from 0) is rewarded gamma^k with gamma 1/2. At the
end lambda (1 - E / T) is subtracted, with lambda 1/2 and E different answers among T, also where one is correct. A turn
without an answer costs 0.1. Answers are compared without case and space. The verdict at the end is the sum of these.

Differs: in the released code a rollout that runs out of turns because some held no answer has no penalty for
repetition, so that an empty turn can raise the reward. Here the penalty holds however the rollout ends (0 without an
answer), and every turn, with or without an answer, is one of the tries. There is one answer per turn. The feedback does
not contain the reward.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.errors import UserError
from posttrain.types import Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class TryAgain(Environment):
    """Compares each turn with the task's answer."""

    tries: PositiveInt = 5
    """Number of turns after which the rollout ends."""
    gamma: Share = 0.5
    """Factor on the reward of the correct answer for each wrong one before it, in [0, 1]."""
    repetition: NonNegativeFloat = 0.5
    """Lambda: limit of the penalty of a rollout that only repeats one answer, in units of reward."""
    no_answer: NonNegativeFloat = 0.1
    """Penalty of each turn without an answer, in units of reward."""
    feedback: str = "Incorrect. Please think again."
    """Observation after a wrong answer."""
    tag: str = ""
    """The answer is between the last ``<tag>`` and ``</tag>``; when empty, the whole turn is the answer."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have an answer."""
        for task in tasks:
            if not normal(task.answer or ""):
                raise UserError(f"task {task.key} has no answer to compare with; give its row an 'answer' column")

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A question without answers so far."""
        return Questioning(self, normal(task.answer or ""))


class Questioning(Instance):
    """One question and the answers so far."""

    def __init__(self, rules: TryAgain, gold: str) -> None:
        self._rules, self._gold = rules, gold
        self._answers: list[str] = []
        self._empty = 0

    async def step(self, action: str) -> Outcome:
        """Take an answer."""
        answer = normal(self._read(action))
        if answer:
            self._answers.append(answer)
        else:
            self._empty += 1
        over = self._solved or len(self._answers) + self._empty == self._rules.tries
        seen = Observation(text=self._rules.feedback, state_key=" ".join(sorted(set(self._answers))))
        return Outcome(observation=seen, done=over, valid=bool(answer))

    def begin(self) -> Observation:
        """The question is the task's prompt."""
        return Observation(state_key="")

    def verdict(self) -> Verdict:
        """Score the rollout."""
        rules, tries = self._rules, len(self._answers)
        gain = rules.gamma ** (tries - 1) if self._solved else 0.0
        repeated = rules.repetition * (1 - len(set(self._answers)) / tries) if tries else 0.0
        explanation = (
            f"{'correct' if self._solved else 'incorrect'} after {tries} answers, {len(set(self._answers))} different, "
            f"and {self._empty} turns without one"
        )
        value = gain - repeated - rules.no_answer * self._empty
        return Verdict(value=value, solved=self._solved, explanation=explanation)

    def measures(self) -> Mapping[str, float]:
        """Share of different answers, where there is an answer."""
        return {"different": len(set(self._answers)) / len(self._answers)} if self._answers else {}

    @property
    def _solved(self) -> bool:
        return bool(self._answers) and self._answers[-1] == self._gold

    def _read(self, action: str) -> str:
        """The answer in a turn; empty where it has none."""
        if not self._rules.tag:
            return action
        _, found, rest = action.rpartition(f"<{self._rules.tag}>")
        answer, closed, _ = rest.partition(f"</{self._rules.tag}>")
        return answer if found and closed else ""


def normal(text: str) -> str:
    """The form in which answers are compared."""
    return "".join(text.lower().split())
