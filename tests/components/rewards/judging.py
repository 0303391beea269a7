"""What the tests of rewards share: attempts with a given text, and their scores."""

import asyncio

import numpy as np

from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Segment, StopReason, Task, Trajectory

SUM = Task(key="sum", prompt="What is 6 times 7, do you think?", answer="42")


def attempt(text: str, task: Task = SUM, *, stop_reason: StopReason = "stop", prompt: str = "prompt") -> Trajectory:
    """An attempt at a task with this completion."""
    written = np.arange(max(len(text.split()), 1))
    return Trajectory(
        task=task,
        segments=(
            Segment(actor="prompt", token_ids=np.arange(2), text=prompt),
            Segment(actor="policy", token_ids=written, trained=True, text=text),
        ),
        stop_reason=stop_reason,
    )


def score_all(reward: Reward, *attempts: Trajectory, context: RewardContext | None = None) -> list[Score]:
    """The scores of some attempts that are one group."""
    group = Group(trajectories=attempts, key="group")
    return list(asyncio.run(reward.score(group, context or RewardContext())))


def judge(reward: Reward, text: str, task: Task = SUM, *, stop_reason: StopReason = "stop") -> Score:
    """The score of one completion."""
    (score,) = score_all(reward, attempt(text, task, stop_reason=stop_reason))
    return score
