"""Tulu 3: four stages, each from the model of the one before, and what they share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.rewards.ended import Ended
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.methods.sft_rl.tulu3 import ROWS, tulu3
from posttrain.models import Model, copied_last
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import preference_of, rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.preview import preview
from posttrain.types import Task
from tests.components.rewards.judging import judge

Small = Callable[..., Recipe]


def test_the_stages_and_their_settings() -> None:
    recipe = tulu3()
    assert list(recipe.stages) == ["sft", "reward_model", "dpo", "rl"]
    loss: Any = preference_of(recipe).loss
    assert (loss.beta, loss.by_length, loss.label_smoothing) == (5.0, True, 0.0)
    stage = rl_of(recipe)
    kl: Any = stage.penalties["kl"]
    assert (kl.coefficient, kl.form, kl.where) == (0.05, "k1", "reward")
    assert (stage.learner.epochs, stage.advantage.lam, stage.advantage.whiten) == (4, 0.95, True)  # type: ignore[attr-defined]
    assert recipe.models["critic"] == Model(source="role:reward", head="value", trained=True)
    assert ROWS == (22,)


def test_ten_for_the_verifier_of_the_row_and_minus_ten_without_an_end() -> None:
    reward = rl_of(tulu3()).reward
    assert isinstance(reward, Ended)
    row = Task(key="k", prompt="Sort: 3 1\n", answer="1 3", domain="sort")
    assert judge(reward, "1 3", row).value == 10.0
    assert judge(reward, "3 1", row).value == 0.0
    assert judge(reward, "1 3", row, stop_reason="length").value == -10.0
    total = replace(row, domain="sums", answer="13")
    assert judge(reward, "so 6+7=13\n#### 13", total).value == 10.0
    assert judge(reward, "1 3", total).value == 0.0


def test_the_critic_begins_as_the_reward_model(tmp_path: Path) -> None:
    """Body and head: its values are the reward model's scores of the states."""
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=64)
    device = torch.device("cpu")
    policy = load_policy("policy", Model(source=str(folder), trained=True), {}, device)
    reward: Any = load_policy(
        "reward", Model(source="role:policy", head="reward", trained=True), {"policy": policy}, device
    )
    with torch.no_grad():
        reward.value_head.weight.normal_()
    critic: Any = load_policy(
        "critic", Model(source="role:reward", head="value", trained=True), {"reward": reward}, device
    )
    assert torch.equal(critic.value_head.weight, reward.value_head.weight)
    assert critic.value_head.weight is not reward.value_head.weight
    ours, theirs = (list(model.body.parameters()) for model in (critic, reward))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_copy_of_a_copy_is_made_after_it() -> None:
    models = tulu3().models
    order = sorted(models, key=lambda role: (copied_last(role, models), role))
    assert order.index("policy") < order.index("reward") < order.index("critic")
    circle = {"a": Model(source="role:b"), "b": Model(source="role:a")}
    assert copied_last("a", circle) == 2


def test_a_planted_row_is_left_out_of_every_stage(small: Small) -> None:
    """A prompt that only puts a word before a held-out one shares most of its 8-grams."""
    rows = "{kind: arithmetic, size: 60, terms: [3, 3], digits: [2, 2]}"
    recipe = small(tulu3(), "models.policy.context=128", f"tasks={rows}", "reward=match", f"evaluation.tasks={rows}")
    tested = recipe.tasks.load()
    assert len(tested) == 60
    planted = replace(tested[0], key="planted", prompt=f"Please: {tested[0].prompt}")
    kept, matched = recipe.evaluation.decontamination.clean([planted], tested)  # type: ignore[union-attr]
    assert (len(kept), matched) == (0, 1)


@pytest.mark.parametrize("kind", ["poems"])
def test_an_unknown_kind_stops_before_sampling(kind: str, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(
        "".join(f'{{"prompt": "p{i}", "answer": "a", "completion": "a", "domain": "{kind}"}}\n' for i in range(8))
    )
    recipe = override(
        tulu3(), [f"tasks={tmp_path / 'odd.jsonl'}", "evaluation.tasks=null", "evaluation.verifier=match"]
    )
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(Exception, match="has the domain 'poems'"):
        context.check(context.first_models())


def test_a_dry_run_has_the_model_that_an_earlier_stage_makes(small: Small) -> None:
    """The critic is a copy of the reward model, which a stage before reinforcement trains."""
    own = ("reward=match", "evaluation.tasks=null", "evaluation.verifier=match", "rl.prompts=2", "rl.rollout.n=2")
    found = preview(small(replace(tulu3(), tasks=Arithmetic()), *own))
    assert "4 rollouts of 2 tasks" in found["stage rl (rl)"][1]
