"""Another reward, with how far each rollout is from the task's demonstration beside it: in reward, and in its text.

Source: GRPO-S of DR-IRL, arXiv:2503.18991, of which secondary text was read, and no code. The value is the other
reward's. Two parts are recorded, and read by the advantage `dynamic_scaling`:

    gap           the reward of the rollout minus that of the demonstration (the sign is not stated in the text)
    similarity    clause by clause, the best cosine with a clause of the demonstration, averaged: in [0, 1]

The demonstration is scored as a rollout of the same group. A task without one, or whose demonstration cannot be scored,
has no such parts. Of several demonstrations the first counts.

Differs: clauses are embedded by the counts of their pieces of characters; the paper has a text encoder that is not
named in the text ("CLIP").
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.clauses import similarity
from posttrain.types import Group, Score, Segment, Trajectory

GAP: Final = "gap"
SIMILARITY: Final = "similarity"


@frozen
class Shadow(Reward):
    """Compares every rollout with the demonstration of its task."""

    of: Reward
    """Scores rollouts and demonstrations; one that learned from demonstrations, such as a reward model."""
    role: str = "policy"
    """The role whose tokens the demonstration is written in."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """The other reward's scores of the rollouts, with the gap and the similarity as parts."""
        own = replace(context, state=context.state.setdefault("of", {}))
        shown = self._demonstration(group.trajectories[0], context) if len(group) else None
        if shown is None:
            return list(await self.of.score(group, own))
        *scores, given = await self.of.score(replace(group, trajectories=(*group.trajectories, shown)), own)
        if given.status == "error":
            return scores
        return [_compared(score, given, t, shown) for score, t in zip(scores, group.trajectories, strict=True)]

    def _demonstration(self, rollout: Trajectory, context: RewardContext) -> Trajectory | None:
        """The demonstration of a rollout's task, as if the model had written it; None without one."""
        task = rollout.task
        if not task.demonstrations:
            return None
        text = task.demonstrations[0]
        ids = context.sampler(self.role, self.kind).encode_completion(task.prompt, text)
        segment = Segment(actor="demonstration", token_ids=ids, trained=True, text=text)
        return Trajectory(task=task, segments=(rollout.segments[0], segment), stop_reason="stop")


def _compared(score: Score, given: Score, rollout: Trajectory, shown: Trajectory) -> Score:
    """A score with both parts; unchanged where scoring failed."""
    if score.status == "error":
        return score
    gap = Score(value=score.value - given.value, status=score.status)
    alike = Score(value=similarity(rollout.completion, shown.completion), status=score.status)
    return replace(score, parts={**score.parts, GAP: gap, SIMILARITY: alike})
