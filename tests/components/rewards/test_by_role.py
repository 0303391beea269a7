"""Each role's rollouts are scored by its own reward."""

from dataclasses import replace

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.by_role import ByRole
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.errors import UserError
from posttrain.types import Trajectory
from tests.components.rewards.judging import attempt, score_all


def by(role: str, text: str) -> Trajectory:
    whole = attempt(text)
    prompt, answer = whole.segments
    return replace(whole, segments=(prompt, replace(answer, actor=role)))


REWARD = ByRole(parts={"policy": Match(), "verifier": Regex(pattern="^yes$")})


def test_who_wrote_decides_and_the_order_stays() -> None:
    group = [by("verifier", "yes"), by("policy", "42"), by("verifier", "42"), by("policy", "yes")]
    assert [score.value for score in score_all(REWARD, *group)] == [1.0, 1.0, 0.0, 0.0]
    assert score_all(REWARD, by("demonstration", "42"))[0].value == 1.0, "a demonstration is the policy's"


def test_each_part_has_a_memory_of_its_own() -> None:
    context = RewardContext()
    score_all(REWARD, by("policy", "42"), by("verifier", "yes"), context=context)
    assert context.state == {"policy": {}, "verifier": {}}


def test_a_role_without_a_part_is_reported() -> None:
    with pytest.raises(UserError, match="no part for the role 'observer'; known: policy, verifier"):
        score_all(REWARD, by("observer", "42"))


def test_its_roles_are_those_of_its_parts() -> None:
    assert ByRole(parts={"policy": RewardModel(role="judge"), "verifier": Match()}).roles == {"judge"}
