"""Lengths among those of the class, and what is remembered of them."""

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.class_length import ClassLength, brevity
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts import Difficulty
from posttrain.types import Group, Task, Trajectory
from tests.builders import trajectory

RULE = ClassLength(correct=Match())
SUM = Task(key="sum", prompt="2+2=", answer="x", domain="sums")


def rollouts(lengths: Sequence[int], of: Task = SUM) -> Group:
    """Correct rollouts of these lengths, wrong ones where a length is negative."""
    wrong = replace(of, answer="y")
    return Group(key=of.key, trajectories=tuple(trajectory(abs(n), of=of if n > 0 else wrong) for n in lengths))


def values(group: Group, state: dict[str, Any], step: int = 0) -> list[float]:
    scores = asyncio.run(RULE.score(group, RewardContext(state=state, step=step, learning=True)))
    return [round(score.value, 6) for score in scores]


def test_the_reward_of_a_length_by_hand() -> None:
    lengths = [10, 20, 30]
    assert brevity(10, lengths) == 1.0 and brevity(15, lengths) == pytest.approx(1 / (1 + math.exp(-2.5)))
    assert brevity(20, lengths) == 0.5, "either term" and brevity(30, lengths) == pytest.approx(1 / (1 + math.exp(5)))
    assert brevity(25, [10, 11, 40]) == 0.5, "the line, where the median is far below"
    assert brevity(20, [20, 20]) == 0.5 and brevity(22, [20, 20]) == pytest.approx(1 / (1 + math.e))
    assert brevity(10**6, [1, 1]) == 0.0 and brevity(10**9, [1, 2]) == 0.0, "no overflow"
    assert brevity(5, []) == 0.0 and brevity(0, [0, 0]) in (0.0, 0.5)


def test_classes_have_their_scale_and_wrong_answers_nothing() -> None:
    easy = values(rollouts([10, 20, 30]), {})
    assert easy[:2] == [5.0, 4.5] and easy[2] == pytest.approx(4 + 1 / (1 + math.exp(5)), abs=1e-6)
    assert values(rollouts([10, 20, 30, -5, -5]), {})[:2] == [4.75, 4.375], "three of five: medium, .75"
    assert values(rollouts([10, -5, -5, -5]), {}) == [4.25, 0, 0, 0], "one of four: hard, .5 of .5"
    known = replace(rollouts([10]).trajectories[0], facts=(Difficulty(pass_rate=0.4, difficulty="medium"),))
    assert values(Group(key="k", trajectories=(known,)), {}) == [4.375], "a compressed rollout keeps its class"


def test_lengths_of_earlier_steps_count_by_domain_and_class() -> None:
    state: dict[str, Any] = {}
    assert values(rollouts([100]), state, 0) == [4.5]
    assert values(rollouts([20]), state, 1) == [5.0], "shortest of two"
    assert values(rollouts([20], replace(SUM, domain="other")), state, 1) == [4.5], "alone in its domain"
    assert values(rollouts([20, -1, -1, -1]), state, 1)[0] == 4.25, "alone in its class"
    json.dumps(state, allow_nan=False)
    assert values(rollouts([40]), state, 9) == [4.75], "the last step of the window of the first"
    assert set(state["lengths"]["sums|easy"]) == {"0", "1", "9"}
    assert values(rollouts([50]), state, 11)[0] < 4.5, "alone with 40"
    assert set(state["lengths"]["sums|easy"]) == {"9", "11"}, "ten steps are remembered"


def test_scores_do_not_depend_on_the_order_of_groups() -> None:
    groups = [rollouts([10, 20]), rollouts([40, 80]), rollouts([5])]
    states: list[dict[str, Any]] = [{}, {}]
    found = [[values(g, state, 3) for g in order] for order, state in zip((groups, groups[::-1]), states, strict=True)]
    assert found[0] == found[1][::-1] and states[0] == states[1]


def test_failures_stay_failures() -> None:
    unfit = Group(key="k", trajectories=(Trajectory(task=replace(SUM, answer=None), segments=(), stop_reason="stop"),))
    [score] = asyncio.run(RULE.score(unfit, RewardContext()))
    assert score.status == "error" and math.isnan(score.value)
