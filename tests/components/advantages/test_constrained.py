"""Learned weights of constraints: shares, signs and Adam's step by hand, baselines by part, and what is undefined."""

import json
from dataclasses import replace
from math import exp

import pytest
from pydantic import ValidationError

from posttrain.components.advantages.constrained import Constrained
from posttrain.types import Batch, Score, Status
from tests.builders import batch


def given(rewards: list[list[float]], **parts: list[Status | None]) -> Batch:
    """Rollouts with the status of each part; None where it does not apply."""
    plain = batch(rewards)
    groups, place = [], 0
    for group in plain.groups:
        scored = []
        for trajectory in group:
            own = {
                name: Score(value=0.0, status=status[place] or "error", applies=status[place] is not None)
                for name, status in parts.items()
            }
            assert trajectory.score is not None
            scored.append(trajectory.scored(replace(trajectory.score, parts=own)))
            place += 1
        groups.append(replace(group, trajectories=tuple(scored)))
    return replace(plain, groups=tuple(groups))


def test_without_constraints_the_reward_has_all_weight() -> None:
    state, credit = Constrained()(Constrained().start(), given([[1.0, 0.0]]))
    assert [float(a[0]) for a in credit.advantages] == [0.5, -0.5] and credit.metrics == {"weight/reward": 1.0}
    assert state["logits"] == [pytest.approx(0.02)]


def test_a_step_by_hand() -> None:
    """Three of four rollouts are long, at most a quarter may be; Adam's first step is the rate, by the sign."""
    advantage = Constrained(at_most={"long": 0.25}, rate=0.5)
    state, credit = advantage(advantage.start(), given([[1.0, 1.0], [0.0, 1.0]], long=["ok", "ok", "wrong", "ok"]))
    # loss = -lambda (.75 - .25) of a softmax of two: the slope of z_1 is -.125, of z_0 .125
    assert state["logits"] == pytest.approx([0.02 - 0.5, 0.02 + 0.5], abs=1e-3)
    share = 1 / (1 + exp(-1.0))
    assert credit.metrics == pytest.approx(
        {"weight/reward": 1 - share, "weight/long": -share, "rate/long": 0.75}, abs=1e-3
    )
    # group 1: nothing differs; group 2: reward -/+ .5, long -/+ .5 with the sign of an upper bound
    wanted = [0.0, 0.0, -0.5 * (1 - share) + 0.5 * share, 0.5 * (1 - share) - 0.5 * share]
    assert [float(a[0]) for a in credit.advantages] == pytest.approx(wanted, abs=1e-3)


def test_a_kept_constraint_loses_weight_and_never_all() -> None:
    advantage = Constrained(at_least={"brief": 0.5}, rate=0.2)
    state = advantage.start()
    for _ in range(50):
        state, credit = advantage(state, given([[1.0, 0.0]], brief=["ok", "ok"]))
    assert 0.9 < credit.metrics["weight/reward"] < 1.0 and 0.0 < credit.metrics["weight/brief"] < 0.1
    assert credit.metrics["weight/reward"] + credit.metrics["weight/brief"] == pytest.approx(1.0)


def test_contradicting_constraints_leave_the_reward_nothing() -> None:
    advantage = Constrained(at_least={"long": 0.8}, at_most={"long": 0.2}, rate=0.2)
    state = advantage.start()
    for _ in range(80):
        state, credit = advantage(state, given([[1.0, 0.0]], long=["ok", "wrong"]))
    assert credit.metrics["weight/reward"] < 0.05
    assert credit.metrics["weight/long/at_least"] == pytest.approx(-credit.metrics["weight/long/at_most"])
    assert advantage.start()["logits"] == [0.02] * 3


def test_bootstrap_and_free_weights() -> None:
    advantage = Constrained(at_least={"tried": 0.9}, bootstrap="tried", rate=1.0)
    _, credit = advantage(advantage.start(), given([[0.0, 0.0]], tried=["ok", "wrong"]))
    assert credit.metrics["weight/reward"] == credit.metrics["weight/tried"] > 0.5
    free = Constrained(at_least={"tried": 0.9}, normalized=False, rate=1.0)
    _, credit = free(free.start(), given([[0.0, 0.0]], tried=["ok", "wrong"]))
    assert credit.metrics["weight/reward"] == 1.0 and credit.metrics["weight/tried"] == pytest.approx(1.02, abs=1e-3)
    _, credit = free(free.start(), given([[0.0, 0.0]], tried=["ok", "ok"]))
    assert credit.metrics["weight/tried"] == 0.0  # max(z, 0)


def test_what_is_not_known_counts_for_nothing_and_the_window_forgets() -> None:
    advantage = Constrained(at_most={"long": 0.5}, window=3, rate=0.0)
    state, credit = advantage(advantage.start(), given([[0.0, 0.0, 0.0]], long=["ok", None, "wrong"]))
    assert credit.metrics["rate/long"] == 0.5 and float(credit.advantages[1][0]) == 0.0
    assert [float(a[0]) for a in credit.advantages] == pytest.approx([-0.25, 0.0, 0.25])
    state, credit = advantage(state, given([[0.0, 0.0]], long=["wrong", "wrong"]))
    assert state["seen"] == {"long": [0.0, 0.0, 0.0]} and credit.metrics["rate/long"] == 0.0
    again, _ = advantage(json.loads(json.dumps(state)), given([[0.0]], long=[None]))
    assert again["seen"] == state["seen"]


def test_names_that_cannot_be() -> None:
    with pytest.raises(ValidationError, match="no behavior can be named 'reward'"):
        Constrained(at_most={"reward": 0.5})
    with pytest.raises(ValidationError, match="bootstrap 'a' is no behavior of at_least"):
        Constrained(at_most={"a": 0.5}, bootstrap="a")
