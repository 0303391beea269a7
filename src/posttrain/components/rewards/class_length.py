r"""Correctness and a reward of length, compared with correct rollouts of tasks of the same class of difficulty.

Source: TRAAC, arXiv:2510.01581, and its release (joykirat18/TRAAC at 0bfea0a7). The class is by the share of a task's
rollouts that are correct: easy from 0.8 on, medium from 0.3 on, else hard. A correct rollout of length L has

    right + s max(clip((Lmax - L) / (Lmax - Lmin), 0, 1), 1 / (1 + exp((L - med) / (0.1 med))))

with s = 1, 0.75, 0.5 for easy, medium, hard, and the longest, shortest and median length of the correct rollouts of the
last 10 steps with the same domain and class; one that is not correct has 0. Lengths are in trained tokens.

Differs: lengths of this step are those of the same group alone, so that scores do not depend on the order in which
groups are finished; of the nine steps before it all count. Where all lengths are equal, the first term is 0. Far above
the median the second one is 0, where the release's exponential overflows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Difficulty
from posttrain.types import Group, Score

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class ClassLength(Reward):
    """Adds a length reward by class to the reward of correctness."""

    correct: Reward
    """Scores the answers; status ``ok`` is correct."""
    right: NonNegativeFloat = 4.0
    """Reward of a correct answer."""
    scales: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat] = (1.0, 0.75, 0.5)
    """s of easy, medium and hard tasks."""
    least: tuple[Share, Share] = (0.8, 0.3)
    """Least share of correct rollouts of an easy and of a medium task; rollouts that bring their class keep it."""
    steps: PositiveInt = 10
    """Steps whose lengths count, the present one included."""

    @property
    def compares(self) -> bool:
        """True."""
        return True

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of correctness."""
        return {"correct": self.correct}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the answers, and compare the lengths of correct ones with those of their class."""
        own = replace(context, state=context.state.setdefault("correct", {}))
        scores = await self.correct.score(group, own)
        valid = [score for score in scores if score.status != "error"]
        if not valid:
            return scores
        fact = group.trajectories[0].fact(Difficulty)
        fact = fact or Difficulty.of(sum(s.status == "ok" for s in valid), len(valid), self.least)
        found = [t.num_trained for t, s in zip(group, scores, strict=True) if s.status == "ok"]
        name = f"{group.trajectories[0].task.domain or ''}|{fact.difficulty}"
        lengths = self._known(context.state.setdefault("lengths", {}), name, context.step, found)
        scale = self.scales[("easy", "medium", "hard").index(fact.difficulty)]
        return [
            self._join(score, t.num_trained, lengths, scale, fact.difficulty)
            for t, score in zip(group, scores, strict=True)
        ]

    def _known(self, state: dict[str, Any], name: str, step: int, found: list[int]) -> list[int]:
        """The lengths that count for a group, whose own are remembered; older ones than the window are left out."""
        rows = {number: row for number, row in state.get(name, {}).items() if int(number) > step - self.steps}
        earlier = [length for number, row in rows.items() if int(number) < step for length in row]
        rows[str(step)] = sorted([*rows.get(str(step), []), *found])
        state[name] = rows
        return [*earlier, *found]

    def _join(self, scored: Score, length: int, lengths: Sequence[int], scale: float, level: str) -> Score:
        if scored.status == "error":
            return scored
        reward = scale * brevity(length, lengths) if scored.status == "ok" else 0.0
        value = reward + (self.right if scored.status == "ok" else 0.0)
        return replace(
            scored,
            value=value,
            explanation=f"{scored.explanation}; {length} tokens, a {level} task: {reward:.4g}",
            parts={"correct": scored, "length": Score(value=reward, status="ok")},
        )


def brevity(length: int, lengths: Sequence[int]) -> float:
    """The reward of a length among others before its scale, in [0, 1]; 0 without others."""
    if not lengths:
        return 0.0
    shortest, longest, median = min(lengths), max(lengths), float(np.median(lengths))
    linear = min(1.0, max(0.0, (longest - length) / (longest - shortest))) if longest > shortest else 0.0
    z = (length - median) / (0.1 * median) if median else math.inf
    return max(linear, 0.5 * (1.0 - math.tanh(0.5 * z)))
