"""Whether a completion has the function calls of the reference: 1 if all are right, else 0.

Source: the reward of FunRL, arXiv:2508.05118: a single strict criterion. Calls are compared by their syntax trees as in
BFCL (`posttrain.grading.calls` has the forms and the rules). The format is for a gate before it: `gated`.

The reference is the task's answer: calls in Python or JSON, or calls with allowed values.
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.grading.calls import NoCalls, difference, parse_calls, parse_reference
from posttrain.grading.extraction import shown
from posttrain.grading.tags import TagName
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class Calls(Reward):
    """Scores 1 for the calls of the reference, in any order, 0 for anything else."""

    tag: TagName | None = "call"
    """The tag that the calls are in, ``<call>...</call>``; None compares the whole completion."""

    @property
    def needs_answer(self) -> bool:
        """It compares with the reference answer."""
        return True

    def gold(self, task: Task) -> Gold | None:
        """The calls in the tag; None for calls with allowed values, which are no calls."""
        try:
            parse_calls(task.answer or "")
        except NoCalls:
            return None
        form = "{answer}" if self.tag is None else f"<{self.tag}>{{answer}}</{self.tag}>"
        return Gold(answer=task.answer or "", form=form)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare the calls of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        try:
            reference = parse_reference(task.answer or "")
        except NoCalls as error:
            return failure(f"the answer of task '{task.key}' {error}: {shown(task.answer or '')}")
        text = self._text(trajectory.completion)
        if text is None:
            return Score(value=0.0, status="wrong", explanation=f"needs one <{self.tag}>...</{self.tag}>")
        try:
            fault = difference(parse_calls(text), reference)
        except NoCalls as error:
            fault = f"{shown(text)} {error}"
        if fault:
            return Score(value=0.0, status="wrong", answer=text, explanation=fault)
        return Score(value=1.0, status="ok", answer=text, explanation=f"{shown(text)} is as wanted")

    def _text(self, completion: str) -> str | None:
        """What is in the tag; None if it is not there once."""
        if self.tag is None:
            return completion
        start, end = f"<{self.tag}>", f"</{self.tag}>"
        if completion.count(start) != 1 or completion.count(end) != 1:
            return None
        before, _, rest = completion.partition(start)
        text, closed, _ = rest.partition(end)
        return text.strip() if closed and end not in before else None
