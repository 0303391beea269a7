"""Reliability of a reward on a scripted model's rollouts."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from posttrain.components.diagnostics import Finding, Subject
from posttrain.components.diagnostics.reliability import ROWS, Reliability
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.errors import UserError
from posttrain.types import Group, Score
from tests.builders import ScriptedSampler


class ByNumber(Reward):
    """Scores rollouts by their number; None is a failure."""

    def __init__(self, *values: float | None) -> None:
        object.__setattr__(self, "values", values)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        given = [self.values[t.sample] for t in group]  # type: ignore[attr-defined]
        return [Score(value=math.nan, status="error") if v is None else Score(value=v, status="ok") for v in given]


def examine(reward: Reward, truth: Reward, **settings: Any) -> Finding:
    unused: Any = None
    diagnostic = Reliability(tasks=Arithmetic(size=4), reward=reward, truth=truth, n=3, **settings)
    serve: Any = lambda policy: ScriptedSampler("policy")  # noqa: E731
    return diagnostic.examine(Subject(name="model", load=lambda: unused, serve=serve))


def test_by_hand() -> None:
    """Four groups of rewards 0 1 2 and scores 0 0 2, as in the test of the statistic: 3/4, 9/11, 1."""
    found = examine(ByNumber(0.0, 1.0, 2.0), ByNumber(0.0, 0.0, 2.0), bins=12).values
    by_rule = found["r_squared"]
    assert by_rule["none"] == pytest.approx({"bins": 3 / 4, "rollouts": 3 / 4})
    assert by_rule["best_random"]["rollouts"] == pytest.approx(9 / 11)
    assert by_rule["best_worst"] == pytest.approx({"bins": 1.0, "rollouts": 1.0})
    assert by_rule["best"] == {"bins": None, "rollouts": None}
    assert (found["tasks"], found["rollouts"], found["left_out"]) == (4, 12, 0)
    assert ROWS == (240,)


def test_rollouts_whose_scoring_failed_are_left_out_and_reported() -> None:
    finding = examine(ByNumber(0.0, None, 2.0), ByNumber(0.0, 1.0, 2.0))
    assert finding.values["left_out"] == 4 and finding.values["r_squared"]["none"]["rollouts"] == pytest.approx(1.0)
    assert finding.lines[0].startswith("8 rollouts of 4 tasks, 4 more left out")
    assert finding.lines[2] == "the best                     not defined (of single rollouts not defined)"


def test_a_reward_that_requires_a_role_is_a_mistake() -> None:
    with pytest.raises(UserError, match="requires the role 'reward', but a diagnostic has one model only"):
        examine(RewardModel(), ByNumber(0.0, 0.0, 0.0))
