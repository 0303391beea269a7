import pytest

from posttrain.components.advantages.exp_reward import ExpReward
from posttrain.components.rewards.levels import Levels
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.retried import Retried
from posttrain.errors import UserError
from posttrain.methods.agents.rise import rise
from posttrain.recipes.changes import rl_of
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.corridor import corridor


def test_the_settings_are_those_of_the_release() -> None:
    stage = rl_of(rise())
    assert stage.advantage == ExpReward(tau=0.4) and not stage.filters
    assert stage.reward == Levels(correct=Match(extract=("whole",)), unreadable=-1.0, wrong=0.0, right=1.0)
    assert isinstance(stage.rollout, Retried) and (stage.rollout.n, stage.rollout.turns) == (16, 5)


def test_a_recipe_of_single_answers_gets_english_feedback_and_keeps_its_number_of_rollouts() -> None:
    rollout = rl_of(rise(arithmetic())).rollout
    assert isinstance(rollout, Retried) and rollout.n == 8 and rollout.feedback.startswith("Incorrect")


def test_an_environment_of_several_turns_is_refused() -> None:
    with pytest.raises(UserError, match="several turns"):
        rise(corridor())
