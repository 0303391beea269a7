"""Correctness and form of rollouts that choose whether to think, with a bonus for not thinking where it is no worse.

Source: HiPO, arXiv:2509.23967, which gives the algorithm of KAT-V1, arXiv:2507.08297, as reviews and the model card
describe it; the papers' text was not read. The reward is correct + 0.2 form. With the mean reward of a group's thinking
rollouts, m_on, and of the others, m_off, let b = omega m_on, with omega about 0.01. Where 0 <= m_on - m_off <= b, every
rollout that does not think gets b more, so that equal modes tip to not thinking. A group with one mode has no bonus.

Differs: a completion without a clear choice has no form and counts as thinking.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.modes import is_formed, mode_of
from posttrain.types import Group, Score, Trajectory


@frozen
class Moded(Reward):
    """Adds the form and the bonus to the reward of correctness."""

    correct: Reward
    """Scores the answers; status ``ok`` is correct."""
    form: NonNegativeFloat = 0.2
    """Reward of the form."""
    omega: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Bonus for not thinking, as a share of the mean reward of thinking; 0 gives none."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of correctness."""
        return {"correct": self.correct}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the answers and their form, then compare the modes."""
        scored = await self.correct.score(group, context)
        modes = [mode_of(trajectory.completion) for trajectory in group]
        formed = [is_formed(t.completion) and t.stop_reason != "length" for t in group]
        values = [score.value + self.form * own for score, own in zip(scored, formed, strict=True)]
        valid = [(mode, value) for mode, value, s in zip(modes, values, scored, strict=True) if s.status != "error"]
        bonus = self.bonus([v for mode, v in valid if mode == "on"], [v for mode, v in valid if mode == "off"])
        return [
            self._joined(trajectory, score, own, mode, bonus)
            for trajectory, score, own, mode in zip(group, scored, formed, modes, strict=True)
        ]

    def bonus(self, on: Sequence[float], off: Sequence[float]) -> float:
        """What each rollout that does not think gets, from the rewards of both modes."""
        if not on or not off:
            return 0.0
        bonus = self.omega * float(np.mean(on))
        gap = float(np.mean(on)) - float(np.mean(off))
        # Means of equal rewards may differ in their last bit.
        return bonus if -1e-9 <= gap <= bonus + 1e-9 else 0.0

    def _joined(self, trajectory: Trajectory, scored: Score, formed: bool, mode: str, bonus: float) -> Score:
        if scored.status == "error":
            return scored
        added = bonus if mode == "off" else 0.0
        thinks, tokens = float(mode == "on"), float(trajectory.num_trained)
        parts = {"form": float(formed), "thinks": thinks, f"tokens_{mode}": tokens, "bonus": added}
        if trajectory.task.domain:
            parts[f"thinks_{trajectory.task.domain}"] = thinks
        return replace(
            scored,
            value=scored.value + self.form * formed + added,
            explanation=f"{scored.explanation}; thinking {mode}, form {int(formed)}, bonus {added:.4g}",
            parts={"correct": scored} | {name: Score(value=part, status="ok") for name, part in parts.items()},
        )
