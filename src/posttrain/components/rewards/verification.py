"""Whether a verifier is right about a result: 1 for the verdict that a rule gives, and something for the form.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034: the verifier is paid for its final verdict only, by the rule that
judges the generator's answers; verdicts on steps are not judged by themselves, and are learned through it.

The task is the one that a rollout makes of a solution: its answer is the mark of the rule (``+`` or ``-``), and its
field `steps` the number of steps to be marked (`posttrain.grading.verdicts` has the form).

Differs: the weight of the form is not in the paper's text that could be read.
"""

from collections.abc import Sequence

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.verdicts import MARKS, read_verdicts
from posttrain.types import Group, Score, Trajectory


@frozen
class Verification(Reward):
    """Pays a verifier for the right final verdict."""

    form: NonNegativeFloat = 0.1
    """Added where every step and the result have a mark, right or not."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each final verdict with the rule's."""
        return [self._judge(trajectory) for trajectory in group]

    def _judge(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        steps = task.fields.get("steps")
        if task.answer not in MARKS.values() or not isinstance(steps, int):
            return failure(f"task '{task.key}' is no solution to be verified: it needs answer '+' or '-', and steps")
        cut = trajectory.stop_reason == "length"
        verdicts = None if cut else read_verdicts(trajectory.completion, steps)
        if verdicts is None:
            why = "cut at the token limit" if cut else f"not a verdict on {steps} steps and the result"
            return Score(value=0.0, status="wrong", explanation=why, parts=_parts(0.0, 0.0))
        said = MARKS[verdicts.result]
        right = float(said == task.answer)
        return Score(
            value=right + self.form,
            status="ok" if right else "wrong",
            answer=said,
            explanation=f"says {said} where the rule says {task.answer}",
            parts=_parts(right, 1.0),
        )


def _parts(right: float, form: float) -> dict[str, Score]:
    """The verdict and the form, each 0 or 1."""
    return {
        name: Score(value=value, status="ok" if value else "wrong")
        for name, value in (("verdict", right), ("form", form))
    }
