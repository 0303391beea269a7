"""What the tests of rewards share: rollouts with a given text, and their scores."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.function import Function
from posttrain.types import Group, Message, Score, Segment, StopReason, Task, Trajectory

Write = Callable[..., Function]
"""Writes a file with a function, and makes it a reward."""
SUM = Task(key="sum", prompt="What is 6 times 7, do you think?", answer="42")
ROW = Task(
    key="row",
    prompt="What is 6 times 7, do you think?",
    answer="42",
    domain="sums",
    fields={"answer": "42", "level": 3, "tests": ["a", "b"]},
)
CHAT = replace(ROW, prompt=(Message(role="system", content="Be brief."), Message(role="user", content="6 * 7?")))


def attempt(text: str, task: Task = SUM, *, stop_reason: StopReason = "stop", prompt: str = "prompt") -> Trajectory:
    """A rollout at a task with this completion."""
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
    """The scores of some rollouts that are one group."""
    group = Group(trajectories=attempts, key="group")
    return list(asyncio.run(reward.score(group, context or RewardContext())))


def judge(reward: Reward, text: str, task: Task = SUM, *, stop_reason: StopReason = "stop") -> Score:
    """The score of one completion."""
    (score,) = score_all(reward, attempt(text, task, stop_reason=stop_reason))
    return score
