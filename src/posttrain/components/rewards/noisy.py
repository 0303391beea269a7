"""Another reward with errors: correct rollouts that count as wrong, wrong ones that count as correct.

Source: the flips of "The Climb Carves Wisdom Deeper Than the Summit": with a probability p that is drawn once for each
prompt, all its rollouts have the reward 1 - r, so that E[r'] = (1 - 2p) r + p. A flipped group has the opposite of its
group-normalized advantages, and the expected update is 1 - 2p times that without noise. With ``per: rollout`` each
rollout has a draw of its own.

Errors are made only where scores are learned from (`RewardContext.learning`): evaluations, selections and audits have
the reward without them. A draw is a function of (seed, step, task, rollout). The share of flips is the metric
``reward/flipped``, and ``reward/of`` is the mean of the reward without errors. A score with status ``error`` stays one.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Noisy(Reward):
    """Flips the outcome of a reward with given probabilities, in training only."""

    of: Reward
    """The reward without errors; status ``ok`` is correct."""
    false_positive: Probability = 0.2
    """Probability that an incorrect rollout counts as correct."""
    false_negative: Probability = 0.2
    """Probability that a correct rollout counts as wrong."""
    per: Literal["task", "rollout"] = "task"
    """What a draw is for: all rollouts of a task in a step, as in the paper, or each rollout."""
    right: float = 1.0
    """Reward of an incorrect rollout that counts as correct."""
    wrong: float = 0.0
    """Reward of a correct rollout that counts as wrong."""
    spare_unanswered: bool = False
    """Whether a rollout in which the reward found no answer is never flipped."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward without errors."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the group, and flip what is drawn."""
        scores = await self.of.score(group, context)
        if not context.learning:
            return scores
        return [self._noised(t, score, context) for t, score in zip(group, scores, strict=True)]

    def _noised(self, trajectory: Trajectory, score: Score, context: RewardContext) -> Score:
        if score.status == "error":
            return score
        solved = score.status == "ok"
        chance = self.false_negative if solved else self.false_positive
        spared = self.spare_unanswered and score.answer is None
        flipped = not spared and self._draw(trajectory, context) < chance
        parts = {"of": score, "flipped": Score(value=float(flipped), status="ok")}
        if not flipped:
            return Score(
                value=score.value,
                status=score.status,
                answer=score.answer,
                confidence=score.confidence,
                explanation=score.explanation,
                parts=parts,
            )
        return Score(
            value=self.wrong if solved else self.right,
            status="wrong" if solved else "ok",
            answer=score.answer,
            confidence=score.confidence,
            explanation=f"flipped: {score.explanation}",
            parts=parts,
        )

    def _draw(self, trajectory: Trajectory, context: RewardContext) -> float:
        """Uniform in [0, 1)."""
        own = f":{trajectory.sample}" if self.per == "rollout" else ""
        return Random(f"noisy:{context.seed}:{context.step}:{trajectory.task.key}{own}").random()
