"""Methods that train judges, and policies by judges: what the papers' stages hand to one another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.components.rewards.duels import Duels
from posttrain.components.rewards.regex import Regex
from posttrain.components.selections.routed import Routed
from posttrain.errors import UserError
from posttrain.methods.reward_models.think_rm import think_rm
from posttrain.methods.reward_models.unified_reward_think import unified_reward_think
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.written_sums import written_sums
from posttrain.stages import Models, Stage
from posttrain.stages.rl import RL
from posttrain.stages.sft import SFT

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
    assert recipe.models["router"].trained, "such a copy is made once, so both stages see the same answers"
    with pytest.raises(UserError, match="exactly one"):
        unified_reward_think(arithmetic())


@pytest.mark.slow
def test_both_stages_of_unified_reward_think_divide_the_items(tmp_path: Path, train: Train) -> None:
    """Of the same counts, the first stage keeps the right ones and the second the wrong ones."""
    sizes = ["tasks.tasks.size=40", "evaluation.tasks=null", "evaluation.holdout=2", "threads=1"]
    sizes += ["sft.max_steps=1", "rejection.max_steps=1", "rl.steps=1", "rl.prompts=2", "rl.rollout.n=2"]
    sizes += ["sft.batch=4", "rejection.batch=4", "rl.rollout.sampling.max_tokens=6"]
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    recipe = override(unified_reward_think(), [f"model={folder}", *sizes])
    any_text = Regex(pattern="[a-m]")  # a random model gives no verdict
    stages: dict[str, Stage] = {}
    for name, stage in recipe.stages.items():
        assert isinstance(stage, SFT | RL)
        if isinstance(stage.selection, Routed):
            stage = replace(stage, selection=replace(stage.selection, reward=any_text, max_tokens=6))
        stages[name] = stage
    _, store = train(replace(recipe, stages=stages))
    notes = [str(entry) for entry in store.events() if "answers" in str(entry) and "router" in str(entry)]
    counts = {note.partition("answers ")[2].partition(" could")[0] for note in notes}
    assert len(notes) == 2 and len(counts) == 1, notes
