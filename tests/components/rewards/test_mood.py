"""The mood at the end as the reward."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.environments import Episode, Verdict
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.mood import Mood
from posttrain.types import Group, Score, Segment, Task, Trajectory


def dialogue(mood: float | None, *replies: str) -> Trajectory:
    facts = (Episode(measures={} if mood is None else {"mood": mood}, verdict=Verdict(value=0.0, solved=mood == 88.0)),)
    return Trajectory(
        task=Task(key="a", prompt=""),
        segments=tuple(
            Segment(actor="policy", token_ids=np.ones(1, np.int64), trained=True, text=text) for text in replies
        ),
        stop_reason="environment",
        facts=facts,
    )


def score(reward: Mood, trajectory: Trajectory) -> Score:
    (found,) = asyncio.run(reward.score(Group(key="a", trajectories=(trajectory,)), RewardContext()))  # type: ignore[misc]
    return found


def test_a_hundredth_of_the_mood() -> None:
    found = score(Mood(), dialogue(88.0, "<think>a</think> b"))
    assert (found.value, found.status) == (0.88, "ok")
    assert score(Mood(), dialogue(-8.0, "<think>a</think>b")).value == 0.0


@pytest.mark.parametrize(
    "bad", ["b", "<think>a</think>", "<think>a", "a<think>b</think>c", "<think></think>a</think>b"]
)
def test_one_broken_reply_takes_the_whole_reward(bad: str) -> None:
    found = score(Mood(), dialogue(88.0, "<think>a</think>b", bad))
    assert (found.value, found.status) == (0.0, "wrong")
    assert score(Mood(template="none"), dialogue(88.0, bad)).value == 0.88


def test_without_a_mood_there_is_no_score() -> None:
    assert score(Mood(), dialogue(None, "<think>a</think>b")).status == "error"
    assert score(Mood(), replace(dialogue(1.0, "b"), facts=())).status == "error"
