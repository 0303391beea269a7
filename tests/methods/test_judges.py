"""Methods that train judges, and policies by judges: what the papers' stages hand to one another."""

from collections.abc import Callable

import pytest

from posttrain.components.rewards.duels import Duels
from posttrain.errors import UserError
from posttrain.methods.reward_models.think_rm import think_rm
from posttrain.methods.reward_models.unified_reward_think import unified_reward_think
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.written_sums import written_sums
from posttrain.stages import Models
from posttrain.stages.rl import RL
from posttrain.stages.sft import SFT
from tests.methods.conftest import small, tiny_folder, train  # noqa: F401

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_think_rm_reinforces_the_judge_on_its_own_items_before_the_policy() -> None:
    recipe = think_rm()
    assert list(recipe.stages) == ["judge", "sft", "judge_rl", "rl"]
    judge, policy, imitated = recipe.stages["judge_rl"], recipe.stages["rl"], recipe.stages["judge"]
    assert isinstance(judge, RL) and isinstance(policy, RL) and isinstance(imitated, SFT)
    assert judge.tasks == imitated.tasks and getattr(judge.rollout, "role", "") == "judge"
    assert isinstance(policy.reward, Duels) and policy.reward == written_sums().stages["rl"].reward  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="role=judge"):
        think_rm(arithmetic())


def test_unified_reward_think_routes_by_one_model_and_one_rule() -> None:
    recipe = unified_reward_think()
    rejection, rl = recipe.stages["rejection"], recipe.stages["rl"]
    assert isinstance(rejection, SFT) and isinstance(rl, RL)
    right, wrong = rejection.selection, rl.selection
    assert (getattr(right, "keep", ""), getattr(wrong, "keep", "")) == ("right", "wrong")
    for name in ("reward", "role", "n", "temperature", "max_tokens"):
        assert getattr(right, name) == getattr(wrong, name)
    assert not recipe.models["router"].trained, "no stage changes it, so both stages see the same answers"
    with pytest.raises(UserError, match="exactly one"):
        unified_reward_think(arithmetic())
