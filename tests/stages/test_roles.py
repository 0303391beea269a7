"""Roles that learn differently: when, from what, and with whose critic."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.hooks import RoleState
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.errors import UserError
from posttrain.methods.multi_agent.cory import cory
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.rl.roles import RoleLearning, RoleTraining, check_roles, steps_of
from posttrain.stages.rl.update import Update
from posttrain.training.settings import Learning
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"


def training(role: str, every: int = 1, warmup_steps: int = 0) -> RoleTraining:
    update: Any = Update(learning=Learning(), objective=PPOClip(), reducer=None)  # type: ignore[arg-type]
    return RoleTraining(
        role=role,
        advantage=GroupMean(),
        penalties={},
        needs=frozenset(),
        updates={role: update, f"{role}_critic": update},
        critic=f"{role}_critic",
        temperature=1.0,
        every=every,
        warmup_steps=warmup_steps,
    )


def test_a_role_has_a_warm_up_and_is_then_updated_every_third_step() -> None:
    policy, verifier = training("policy"), training("verifier", every=3, warmup_steps=2)
    due = [(policy.due(step, 2), verifier.due(step, 2)) for step in range(8)]
    assert [p for p, _ in due] == [False, False, True, True, True, True, True, True]
    assert [v for _, v in due] == [True, True, False, False, True, False, False, True]
    steps = steps_of({"policy": policy, "verifier": verifier}, 8)
    assert steps == {"policy": 6, "policy_critic": 6, "verifier": 4, "verifier_critic": 4}


def test_settings_that_contradict_are_refused() -> None:
    with pytest.raises(UserError, match=r"by_role.verifer: only a trained model.*did you mean 'verifier'"):
        check_roles({"verifer": RoleLearning()}, {"policy", "verifier"}, None)
    with pytest.raises(UserError, match="but the stage has no loss for one"):
        check_roles({"verifier": RoleLearning(critic="c")}, {"policy", "verifier"}, None)
    with pytest.raises(UserError, match="the critic 'critic' serves two roles"):
        check_roles({"verifier": RoleLearning(critic="critic")}, {"policy", "verifier"}, PPOClip())


def small_cory(small: Small, folder: Path, *changes: str) -> Recipe:
    recipe = cory(small(None, "rollout.n=2"))
    return with_reward(override(recipe, ["steps=6", "hooks.roles.every=2", *changes]), folder, VARIED)


def parameters(models: Models) -> Mapping[str, torch.Tensor]:
    return {f"{role} {n}": p.detach() for role, model in models.items() for n, p in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["false", "true"])
def test_a_run_with_exchanges_resumes_bit_for_bit(small: Small, train: Train, tmp_path: Path, reset: str) -> None:
    recipe = small_cory(small, tmp_path, f"hooks.roles.reset={reset}", "checkpoints.every_steps=3")
    models, whole = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=5)
    assert resumed.metrics() == whole.metrics()
    ours, theirs = parameters(models), parameters(again)
    assert ours.keys() == theirs.keys() and all(torch.equal(p, theirs[name]) for name, p in ours.items())


@pytest.mark.slow
def test_hooks_see_what_learning_left_and_the_next_step_samples_from_it(
    small: Small, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.components.hooks.swap import Swap

    seen: list[tuple[torch.Tensor, ...]] = []
    exchange = Swap._swap

    def watched(self: Swap, one: RoleState, other: RoleState) -> None:
        before = [next(iter(role.model.parameters())).detach().clone() for role in (one, other)]
        exchange(self, one, other)
        seen.append((*before, *(next(iter(role.model.parameters())).detach().clone() for role in (one, other))))

    monkeypatch.setattr(Swap, "_swap", watched)
    _, store = train(small_cory(small, tmp_path))
    assert len(seen) == 2 * 3, "two pairs, every second of six steps"
    for one, other, one_after, other_after in seen:
        assert torch.equal(one, other_after) and torch.equal(other, one_after)
        assert not torch.equal(one, other)
    versions = [{row["version"] for row in store.rollouts(step)} for step in (1, 2, 3)]
    assert versions[0] == {0} and all(versions)


def test_a_frozen_model_of_its_own_is_not_changed(small: Small, tiny_folder: Path) -> None:
    recipe = with_models(small(), {"teacher": Model(source=str(tiny_folder))})
    recipe = override(recipe, ["hooks.follow={kind: ema, target: teacher}"])
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match=r"hooks.follow changes the role 'teacher', whose model is neither trained"):
        context.check(context.first_models())


def test_a_reference_that_follows_is_saved_with_the_run(small: Small, train: Train, tmp_path: Path) -> None:
    changes = ["models.reference.source=role:policy", "hooks.follow={kind: ema, decay: 0.5}", "filters={}"]
    recipe = with_reward(override(small(), [*changes, "checkpoints.every_steps=2", "lr=1e-2"]), tmp_path, VARIED)
    assert "reference" in rl_of(recipe).roles
    models, whole = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert resumed.metrics() == whole.metrics()
    ours, theirs = parameters(models), parameters(again)
    assert all(torch.equal(p, theirs[name]) for name, p in ours.items())
    assert any(not torch.equal(ours[n], ours[n.replace("reference", "policy")]) for n in ours if n[:3] == "ref")
