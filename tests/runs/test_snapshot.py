"""A checkpoint brings back every number that training and sampling depend on, bit for bit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.snapshot import Snapshot, newest_snapshot, save_snapshot
from posttrain.runs.store import RunStore
from posttrain.training.learner import Learner
from posttrain.training.settings import Learning

MEMORY = {"curriculum": {"seen": [1, 2]}, "advantage": {}, "filters": {"z": {}}, "reward": {"calls": 3}}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return new_folder(folder, layers=1, width=32, heads=2, kv_heads=1, context=64)


def recipe_of(tiny: Path, *changes: str) -> Recipe:
    """PPO: a trained policy, a trained critic and a frozen reference, both copies of the policy."""
    return override(ppo(), [f"model={tiny}", "tasks.size=10", "evaluation.holdout=2", *changes])


def context_of(recipe: Recipe) -> RunContext:
    return RunContext(recipe, torch.device("cpu"))


def models_of(context: RunContext) -> dict[str, Policy]:
    return context.with_copies(context.recipe.stages["rl"], context.first_models())


def train(policy: Policy, updates: int, seed: int) -> Learner:
    """A learner whose optimizer has seen some made-up gradients, and changed the policy."""
    learner = Learner(policy, Learning(), seed=0, num_steps=100)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        for parameter in learner.parameters.values():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        for optimizer in learner.optimizers:
            optimizer.step()
        learner.masters.publish()
        learner.updates += 1
        policy.version += 1
    return learner


def bits(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(t.detach().contiguous().flatten().view(torch.uint8).numpy()) for name, t in tensors.items()}


def weights(policy: Policy) -> dict[str, bytes]:
    return bits(dict(policy.named_parameters()))


def go_round(
    store: RunStore, recipe: Recipe, models: Mapping[str, Policy], learners: Mapping[str, Learner]
) -> Snapshot:
    """Save everything, and read it back as another process would: with nothing but the recipe."""
    state = {role: learner.state() for role, learner in learners.items()}
    save_snapshot(store, recipe, models, step=9, stage=0, steps_done=9, memory=MEMORY, learners=state)
    found = newest_snapshot(store, context_of(recipe))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("models.policy.lora.rank=2",),
        ("models.policy.dtype=bfloat16", "models.reference.dtype=bfloat16"),
        ("models.critic.lora.rank=2",),
        ("models.critic.trained=false",),
        ("models.policy.lora.rank=2", "models.critic.lora.rank=4", "models.reference.dtype=bfloat16"),
    ],
    ids=lambda changes: " ".join(changes) or "plain",
)
def test_everything_comes_back_bit_for_bit(tiny: Path, tmp_path: Path, changes: tuple[str, ...]) -> None:
    recipe = recipe_of(tiny, *changes)
    context = context_of(recipe)
    models = context.first_models()
    train(models["policy"], 3, seed=1)  # so that copies differ from what the recipe's model begins with
    models = context.with_copies(recipe.stages["rl"], models)
    trained = sorted(role for role, model in recipe.models.items() if model.trained)
    learners = {role: train(models[role], 2 + place, seed=2 + place) for place, role in enumerate(trained)}
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        store.log_metrics(9, "rl", 9, {"reward": 0.5})
        found = go_round(store, recipe, models, learners)
        assert found.position == store.position()

    assert (found.step, found.stage, found.steps_done, found.resumed) == (9, 0, 9, True)
    assert found.memory == MEMORY
    assert set(found.models) == set(models) == {"policy", "critic", "reference"}
    for role, policy in models.items():
        back = found.models[role]
        assert weights(back) == weights(policy), role
        assert back.version == policy.version, role
        assert [p.requires_grad for p in back.parameters()] == [p.requires_grad for p in policy.parameters()], role
    assert len({b"".join(weights(policy).values()) for policy in models.values()}) == 3, "no two were alike"
    assert set(found.learners) == set(learners)
    for role, learner in learners.items():
        numbers, tensors = learner.state()
        assert found.learners[role][0] == numbers
        assert bits(found.learners[role][1]) == bits(tensors)
        assert any("exp_avg" in name for name in tensors)
        resumed = Learner(found.models[role], Learning(), seed=0, num_steps=100)
        resumed.load_state(*found.learners[role])
        assert bits(resumed.state()[1]) == bits(tensors)


def test_a_frozen_model_from_a_folder_is_not_saved_again(tiny: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny, f"models.reference.source={tiny}")
    context = context_of(recipe)
    models = models_of(context)
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        found = go_round(store, recipe, models, {})
        [checkpoint] = store.checkpoints.iterdir()
    assert sorted(p.name for p in (checkpoint / "models").iterdir()) == ["critic", "policy"]
    assert weights(found.models["reference"]) == weights(models["reference"])


def test_the_adapters_of_a_checkpoint_on_their_base_are_the_merged_weights(tiny: Path, tmp_path: Path) -> None:
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.policies.lora import merge_adapters

    recipe = recipe_of(tiny, "models.policy.lora.rank=2")
    context = context_of(recipe)
    models = models_of(context)
    train(models["policy"], 2, seed=1)
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        go_round(store, recipe, models, {})
        [checkpoint] = store.checkpoints.iterdir()
    kept = Model(source=str(checkpoint / "models" / "policy"), base=str(tiny))
    merged = load_policy("policy", kept, {}, torch.device("cpu"))
    merge_adapters(models["policy"].body)
    assert weights(merged) == weights(models["policy"])


def test_between_stages_there_is_no_optimizer_and_no_memory(tiny: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny)
    context = context_of(recipe)
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        save_snapshot(store, recipe, context.first_models(), step=4, stage=1)
        found = newest_snapshot(store, context)
    assert found is not None
    assert (found.step, found.stage, found.steps_done) == (4, 1, 0)
    assert (found.memory, found.learners, set(found.models)) == ({}, {}, {"policy"})


def test_without_a_checkpoint_there_is_nothing(tiny: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny)
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        assert newest_snapshot(store, context_of(recipe)) is None


def test_only_the_newest_are_kept(tiny: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny, "checkpoints.keep=2")
    models = context_of(recipe).first_models()
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        for step in (1, 2, 10):
            save_snapshot(store, recipe, models, step=step, stage=0, steps_done=step)
        assert sorted(p.name for p in store.checkpoints.iterdir()) == ["step_000002_0", "step_000010_0"]


@pytest.fixture
def four_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_a_resumed_run_uses_as_many_threads_as_before(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(tiny)
    context = context_of(recipe)
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        checkpoint = save_snapshot(store, recipe, context.first_models(), step=1, stage=0)
        assert json.loads((checkpoint / "state.json").read_text())["threads"] == 4
        torch.set_num_threads(1)
        newest_snapshot(store, context)
        assert torch.get_num_threads() == 4
        torch.set_num_threads(1)
        monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
        with pytest.raises(UserError, match=r"the run used 4 CPU threads and this process has 1; .*OMP_NUM_THREADS"):
            newest_snapshot(store, context)
