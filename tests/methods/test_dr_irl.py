"""DR-IRL: its stages, a model for each category, and what a run records of gaps, weights and safe requests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.components.advantages.dynamic_scaling import DynamicScaling
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.shadow import Shadow
from posttrain.components.tasks.guarded_requests import HARMS
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.safety.dr_irl import ROWS, dr_irl
from posttrain.policies.folder import new_folder
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.guarded_requests import guarded_requests
from posttrain.stages import Models
from posttrain.stages.rl import RL

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_it_is_grpo_with_a_reward_model_for_each_category() -> None:
    assert ROWS == (207,)
    recipe = dr_irl()
    assert list(recipe.stages) == ["sft", "irl", "policy_rl", "irl_again", "rl"]
    changed = {difference.path for difference in differences(grpo(guarded_requests()), recipe)}
    stages = {"stages.irl", "stages.policy_rl", "stages.irl_again"}
    models = {"models.reference", *(f"models.reward_{category}" for category in HARMS)}
    assert {path.removeprefix("rl.") for path in changed} == {"reward", "advantage", "penalties.kl", *stages, *models}
    stage = recipe.stages["rl"]
    assert isinstance(stage, RL) and isinstance(stage.reward, Shadow) and isinstance(stage.reward.of, Routed)
    assert isinstance(stage.advantage, DynamicScaling)
    for category, part in stage.reward.of.parts.items():
        assert isinstance(part, RewardModel) and part.role == f"reward_{category}"


@pytest.mark.slow
def test_a_run_records_the_weights_and_safe_requests_apart(tmp_path: Path, train: Train) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=64)
    sizes = (
        "tasks.size=60",
        "evaluation.tasks.size=12",
        "evaluation.holdout=12",
        "sft.max_steps=1",
        "sft.tasks.size=40",
    )
    steps = (
        "irl.steps=1",
        "irl_again.steps=1",
        "policy_rl.steps=1",
        "rl.steps=1",
        "rl.prompts=3",
        "policy_rl.prompts=3",
        "rl.audit.most_fooled=1",
        "policy_rl.audit.most_fooled=1",
    )
    short = [f"{stage}.rollout.sampling.max_tokens=6" for stage in ("irl", "irl_again", "policy_rl", "rl")]
    model = f"models.policy.source={folder}"
    _, store = train(override(dr_irl(), [*sizes, *steps, *short, model, "threads=1", "rl.filters={}"]))
    last = store.metrics()[-1]
    told = {"reward/gap", "reward/similarity", "alpha", "alpha_model", "alpha_data_std", "group_sum", "gaps_kept"}
    assert told <= last.keys() and last["alpha"] > 0 and last["group_sum"] >= 0
    assert "safe" in store.evaluations()[-1]["accuracy_by_domain"]


def test_what_is_scaled_is_grpos_advantage() -> None:
    stage, plain = dr_irl().stages["rl"], grpo(guarded_requests()).stages["rl"]
    assert isinstance(stage, RL) and isinstance(stage.advantage, DynamicScaling) and isinstance(plain, RL)
    assert stage.advantage.advantage == plain.advantage, "what is scaled is the parent's"
