"""The environment's verdict on a rollout, for rollouts of several turns.

Rewards of single turns are credited to those turns by themselves. The verdict is added to them.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from posttrain.component import frozen
from posttrain.components.environments import Episode
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score, Trajectory


@frozen
class Verdict(Reward):
    """Takes value and status from the environment's verdict."""

    RENAMED: ClassVar = {"pay": "value"}

    value: Literal["value", "solved"] = "value"
    """``value``: the value of the verdict; ``solved``: 1 for a solved task, else 0."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read the verdict of each rollout."""
        return [self._read(trajectory) for trajectory in group]

    def _read(self, trajectory: Trajectory) -> Score:
        episode = trajectory.fact(Episode)
        if episode is None or episode.verdict is None:
            return failure(
                f"the rollout of task '{trajectory.task.key}' has no verdict of an environment; take a rollout with an "
                "environment that gives verdicts, or another reward"
            )
        verdict = episode.verdict
        solved = bool(verdict.solved)
        value = float(verdict.value) if self.value == "value" else float(solved)
        status: Literal["ok", "wrong"] = "ok" if solved else "wrong"
        return Score(value=value, status=status, explanation=verdict.explanation)
