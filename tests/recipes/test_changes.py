import warnings
from dataclasses import replace

import pytest

from posttrain.components.filters.moving_std import MovingStd
from posttrain.errors import Overlap, UserError
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.lite_ppo import lite_ppo
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sampling.dars import dars
from posttrain.models import Model
from posttrain.recipes.changes import (
    compose,
    every_group,
    rl_of,
    sampled_of,
    several_updates,
    with_models,
    with_stage,
    with_stages_before,
)
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.corridor import corridor
from posttrain.settings.quickstart import quickstart
from posttrain.training.settings import Learning


def test_methods_apply_from_left_to_right() -> None:
    recipe = compose(arithmetic(), dr_grpo, dars)
    assert recipe == replace(dars(dr_grpo(arithmetic())), name="dr_grpo+dars")
    assert compose(arithmetic()) == arithmetic()


def test_every_path_that_is_changed_twice_is_reported() -> None:
    with pytest.warns(Overlap) as told:
        compose(arithmetic(), lite_ppo, ppo)
    assert [str(warning.message) for warning in told] == [
        "ppo changes what lite_ppo had changed: advantage  {kind: group_mean, scale: batch} -> gae"
    ]


def test_what_was_not_changed_before_is_not_reported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compose(arithmetic(), grpo, dr_grpo, dars)


def test_a_role_that_is_there_keeps_its_model() -> None:
    own = Model(source="own", head="value", trained=True)
    recipe = with_models(arithmetic(), {"critic": own})
    assert with_models(recipe, {"critic": Model(source="other"), "judge": Model(source="x")}).models == {
        "policy": arithmetic().models["policy"],
        "critic": own,
        "judge": Model(source="x"),
    }


def test_a_critic_that_is_tuned_stays() -> None:
    first = ppo()
    tuned = with_stage(first, replace(rl_of(first), critic_learner=Learning(epochs=5)))
    again = rl_of(ppo(tuned))
    assert again.critic_learner == Learning(epochs=5) and again.critic == rl_of(first).critic


def test_an_environment_of_several_turns_is_not_replaced() -> None:
    with pytest.raises(UserError, match="recipe 'dr_grpo' has the rollout 'turns', an environment of several turns"):
        dars(corridor())
    assert sampled_of(arithmetic()) == rl_of(arithmetic())


def test_only_filters_of_equal_rewards_are_left_out() -> None:
    stage = rl_of(arithmetic())
    own = replace(stage, filters={**stage.filters, "own": MovingStd()})
    assert every_group(own) == {"own": MovingStd()}


def test_a_learner_with_several_updates_keeps_them() -> None:
    assert several_updates(Learning(), epochs=4) == Learning(epochs=4)
    assert several_updates(Learning(minibatches=3), epochs=4) == Learning(minibatches=3)


def test_stages_come_right_before_the_one_that_is_named() -> None:
    recipe = quickstart()
    first, second = recipe.stages.values()
    assert list(with_stages_before(recipe, {"new": first}, second).stages) == ["sft", "new", "rl"]
    with pytest.raises(UserError, match="has a stage named 'sft' already"):
        with_stages_before(recipe, {"sft": first}, second)
