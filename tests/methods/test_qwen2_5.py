"""Qwen2.5: four stages; the order of prompts, the references, and what each stage begins from."""

from typing import Any

from posttrain.components.optimizers.online_merging import OnlineMerging
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.selections.by_spread import BySpread
from posttrain.components.selections.sampled import Sampled
from posttrain.datasets.overlap import Decontamination
from posttrain.methods.sft_rl.qwen2_5 import QUERIES, qwen2_5
from posttrain.recipes.changes import rl_of
from posttrain.settings.arithmetic import arithmetic


def test_the_stages_and_their_parts() -> None:
    recipe = qwen2_5()
    stages: Any = recipe.stages
    assert list(stages) == ["sft", "dpo", "reward_model", "rl"]
    assert isinstance(stages["dpo"].selection, Sampled) and stages["dpo"].selection.use == "pairs"
    assert isinstance(stages["dpo"].learner.optimizer, OnlineMerging)
    assert stages["reward_model"].selection.temperatures == (0.7, 1.0)
    assert recipe.evaluation.decontamination == Decontamination(rule="subsequence", n=13, share=0.6)


def test_the_reference_of_the_second_stage_is_the_model_of_the_first() -> None:
    """A frozen copy is taken when a stage begins; the base is the model before any stage."""
    recipe = qwen2_5()
    reference, base = recipe.models["reference"], recipe.models["base"]
    assert (reference.source, reference.trained) == ("role:policy", False)
    assert (base.source, base.trained) == (recipe.models["policy"].source, False)
    assert {"reference", "base"} <= recipe.stages["dpo"].roles


def test_the_same_prompts_for_reward_model_and_reinforcement_in_the_order_of_spread() -> None:
    recipe = qwen2_5()
    stage = rl_of(recipe)
    rating: Any = recipe.stages["reward_model"].selection
    assert isinstance(stage.selection, BySpread) and isinstance(stage.reward, RewardModel)
    assert stage.selection.first == rating.first == QUERIES
    assert (stage.selection.n, stage.selection.reward, stage.curriculum.kind) == (8, RewardModel(), "in_order")


def test_held_out_answers_are_scored_by_the_settings_reward() -> None:
    assert qwen2_5(arithmetic()).evaluation.verifier == rl_of(arithmetic()).reward
