"""Whether a verifier's final verdict is correct: 1 if it agrees with the rule, plus a reward of the format.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034: only the final verdict of the verifier is rewarded, by the rule
that scores the generator's answers. Verdicts on steps have no reward of their own.

The task is made by a rollout from a solution. Its answer is the mark of the rule (``+`` or ``-``), and its field
`steps` the number of steps to be marked (the format is in `posttrain.grading.verdicts`).

Differs: the weight of the format is not in the available text of the paper.
"""

from collections.abc import Sequence

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.verdicts import MARKS, read_verdicts
from posttrain.types import Group, Score, Trajectory


@frozen
class Verification(Reward):
    """Rewards a verifier for the correct final verdict."""

    form: NonNegativeFloat = 0.1
    """Reward of the format: every step and the result have a mark, correct or not."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each final verdict with that of the rule."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        steps = task.fields.get("steps")
        if task.answer not in MARKS.values() or not isinstance(steps, int):
            return failure(f"task '{task.key}' is no solution to be verified: it needs answer '+' or '-', and steps")
        cut = trajectory.stop_reason == "length"
        verdicts = None if cut else read_verdicts(trajectory.completion, steps)
        if verdicts is None:
            why = "cut at the token limit" if cut else f"not a verdict on {steps} steps and the result"
            return Score(value=0.0, status="wrong", explanation=why, parts=_parts(0.0, 0.0))
        mark = MARKS[verdicts.result]
        right = float(mark == task.answer)
        return Score(
            value=right + self.form,
            status="ok" if right else "wrong",
            answer=mark,
            explanation=f"the verdict is {mark}, that of the rule {task.answer}",
            parts=_parts(right, 1.0),
        )


def _parts(right: float, form: float) -> dict[str, Score]:
    """The scores of the verdict and of the format, each 0 or 1."""
    return {
        name: Score(value=value, status="ok" if value else "wrong")
        for name, value in (("verdict", right), ("form", form))
    }
