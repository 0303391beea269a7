"""What the world of an attempt says of it: for rollouts in which model and world take turns.

The rewards of single turns are credited to those turns, whatever judges the whole; a verdict comes on top of them.
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.component import frozen
from posttrain.components.environments import Episode
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score, Trajectory


@frozen
class Verdict(Reward):
    """Pays what the world says; it is right when the world calls the task solved."""

    pay: Literal["value", "solved"] = "value"
    """``value``: what the world says that the attempt is worth; ``solved``: 1 for a solved task and 0 for another."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read the verdicts."""
        return [self._read(trajectory) for trajectory in group]

    def _read(self, trajectory: Trajectory) -> Score:
        episode = trajectory.fact(Episode)
        if episode is None or episode.verdict is None:
            return failure(
                f"no world has judged the attempt at task '{trajectory.task.key}'; take a rollout with an environment "
                "that gives verdicts, or another reward"
            )
        verdict = episode.verdict
        solved = bool(verdict.solved)
        value = float(verdict.value) if self.pay == "value" else float(solved)
        status: Literal["ok", "wrong"] = "ok" if solved else "wrong"
        return Score(value=value, status=status, explanation=verdict.explanation)
