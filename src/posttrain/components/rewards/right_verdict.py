"""Whether a judge's reply gives the verdict of the label, for judges that are trained by reinforcement.

The answer of the task is the label: ``A`` or ``B``, the sentence that names the better candidate, or a strength from -3
to 3 but 0, negative where A is better. With the parser ``strength`` a reply of the right side but another strength has
the value `partial`. A reply without a verdict is wrong: the judge is what learns here. `posttrain.grading.replies` has
the parsers.

Source: UnifiedReward-Think, arXiv:2503.03318 (``first_tag``); Think-RM, arXiv:2505.16265 (``last_letter``,
``strength``); J1, arXiv:2505.11875 (``after_thinking``), by their releases and model cards.
"""

from collections.abc import Sequence

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.replies import Parser, Reply, read_reply
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class RightVerdict(Reward):
    """Scores the verdict of a judge against the label of the task."""

    parser: Parser = "last_letter"
    """How a reply is read."""
    right: float = 1.0
    """Value of the right verdict."""
    wrong: float = 0.0
    """Value of another verdict, and of a reply without one."""
    partial: float = Field(default=0.5, allow_inf_nan=False)
    """Value of the right side with another strength, for the parser ``strength``."""

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task whose label the parser can never read."""
        for task in tasks:
            label = task.answer or ""
            if label and self._label(label).fault:
                raise TaskFault(
                    task.key,
                    f"task {task.key}: the label {label!r} is nothing that the parser '{self.parser}' reads; give "
                    f"labels of its form, or another parser",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read each reply."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        label = trajectory.task.answer
        if label is None:
            return failure("the task has no label to compare the verdict with")
        cut = trajectory.stop_reason == "length"
        reply = read_reply(trajectory.completion, self.parser)
        if reply.fault or cut:
            why = reply.fault or "it was cut at the token limit"
            return Score(value=self.wrong, status="wrong", explanation=f"no verdict: {why}")
        wanted = self._label(label)
        answer = reply.choice if reply.strength is None else f"{reply.strength:+d}"
        if reply.strength == wanted.strength and reply.choice == wanted.choice:
            return Score(value=self.right, status="ok", answer=answer, explanation=f"{answer} is the label")
        side = reply.strength is not None and reply.choice == wanted.choice
        value, why = (self.partial, "the right side of") if side else (self.wrong, "not")
        return Score(value=value, status="wrong", answer=answer, explanation=f"{answer} is {why} the label {label}")

    def _label(self, label: str) -> Reply:
        """The label as the parser reads it."""
        form = "<think></think><answer>{}</answer>" if self.parser == "after_thinking" else "<answer>{}</answer>"
        return read_reply(label if self.parser == "yes_no" else form.format(label), self.parser)
