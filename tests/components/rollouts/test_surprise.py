"""Two roles in rounds: densities, whose turn it is, and rewards that sum to zero."""

import asyncio
import math

import numpy as np
import pytest

from posttrain.components.environments.rooms import Rooms
from posttrain.components.rollouts._surprise import GREATEST, Density, turn_of
from posttrain.components.rollouts.surprise import Surprise
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.types import Group, Task
from tests.builders import ScriptedSampler

TASK = Task(key="t", prompt="go")


def test_log_probabilities_by_hand() -> None:
    """Two places: before anything 2 log(1/10); after a a, a b: the second place has a once in two."""
    density = Density()
    assert density.logp(["a", "a"]) == pytest.approx(-2 * math.log(10)) and density.shown() == "none"
    density.add(["a", "a"])
    density.add(["a", "b"])
    assert density.logp(["a", "b"]) == pytest.approx(math.log(0.5))
    assert density.logp(["c"]) == pytest.approx(math.log(1e-3)) and density.logp([]) == 0.0
    assert density.shown() == "a 9 a 4", "of equals the first; 4.5 tenths are rounded to the even 4"


def test_a_dark_room_loses_its_surprise() -> None:
    density = Density()
    rewards = []
    for _ in range(3):
        rewards.append(density.logp(["dark"]))
        density.add(["dark"])
    assert rewards == [pytest.approx(-math.log(10)), 0.0, 0.0]


def test_whose_turn_it_is() -> None:
    turns = [turn_of(number, 4, 0.5) for number in range(8)]
    assert [turn.controls for turn in turns] == [False] * 4 + [True] * 4
    assert [turn.scored for turn in turns] == [False] * 6 + [True] * 2
    assert [turn.last for turn in turns] == [False, False, False, True] * 2
    assert [turn_of(n, 4, 0.0).scored for n in range(4, 8)] == [True] * 4


def collected(**settings: object) -> list[Group]:
    given = {"n": 2, "rounds": 4, "length": 4, "sampling": Sampling(max_tokens=2), **settings}
    rollout = Surprise(environment=Rooms(rooms=2, lit=1), **given)  # type: ignore[arg-type]
    samplers = {role: ScriptedSampler(role) for role in ("policy", "control")}
    return asyncio.run(rollout.collect(TASK, samplers))


def test_rewards_sum_to_zero_in_each_pair_of_rounds() -> None:
    explore, control = collected()
    for one, other in zip(explore, control, strict=True):
        own = {s.turn: s.reward for s in one.segments if s.trained}
        answers = {s.turn: s.reward for s in other.segments if s.trained}
        assert sorted(own) == [0, 1, 2, 3, 8, 9, 10, 11] and sorted(answers) == [4, 5, 6, 7, 12, 13, 14, 15]
        assert all(own[turn] == 0.0 for turn in own if turn not in (3, 11))
        assert all(answers[turn] == 0.0 for turn in (4, 5, 12, 13))
        assert own[3] == pytest.approx(-answers[6] - answers[7]) and own[3] > 0.0
        assert own[11] == pytest.approx(-answers[14] - answers[15])
        assert answers[6] == pytest.approx((-math.log(10) * 2) / (2 * GREATEST)), "a word and the cell, both new"
        assert sum(s.reward for s in one.segments) == pytest.approx(-sum(s.reward for s in other.segments))


def test_each_role_learns_from_its_own_turns() -> None:
    for group, role in zip(collected(), ("policy", "control"), strict=True):
        for t in group:
            assert t.learners == {role} and {s.actor for s in t.segments} >= {"policy", "control"}
            assert np.isfinite(t.behavior_logp).all()


def test_counts_of_a_round_start_anew() -> None:
    _, control = collected(buffer="round")
    for t in control:
        rewards = {s.turn: s.reward for s in t.segments if s.trained}
        assert rewards[14] == rewards[6] == pytest.approx(-math.log(10) / GREATEST)


def test_an_episode_that_ends_early_credits_what_was_scored() -> None:
    short = Surprise(environment=Rooms(horizon=7), n=1, length=4, sampling=Sampling(max_tokens=2))
    samplers = {role: ScriptedSampler(role) for role in ("policy", "control")}
    explore, control = asyncio.run(short.collect(TASK, samplers))
    [one], [other] = explore.trajectories, control.trajectories
    assert sum(s.reward for s in one.segments) == pytest.approx(-sum(s.reward for s in other.segments)) != 0.0
    first = Surprise(environment=Rooms(horizon=3), n=1, length=4, sampling=Sampling(max_tokens=2))
    assert len(asyncio.run(first.collect(TASK, samplers))) == 1, "Control has not acted"


def test_held_out_episodes_are_explores() -> None:
    held = Surprise(environment=Rooms(), length=4).held_out(3, Sampling())
    assert isinstance(held, Turns) and (held.max_turns, held.n) == (16, 3)
