"""Merging as a stage: the role it makes is there afterwards, stays through later stages and over a resume."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.components.merges.soup import Soup
from posttrain.errors import UserError
from posttrain.methods.preference.salsa import salsa
from posttrain.policies import Policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.merge import Merging
from posttrain.types import Task
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("second.max_steps=2", "sft.max_steps=2", "rollout.n=2", "prompts=4", "sft.learner.optimizer.lr=1e-2")


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.body.parameters()])


@pytest.mark.slow
def test_what_is_made_is_recorded_and_kept(small: Small, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    run = Merging.run

    def watched(self: Merging, models: Models, stage_run: object) -> Models:
        seen.update({role: weights(policy).double() for role, policy in models.items()})
        assert "reference" not in seen
        return run(self, models, stage_run)  # type: ignore[arg-type]

    monkeypatch.setattr(Merging, "run", watched)
    models, store = train(small(salsa(), *SHORT))
    expected = ((seen["policy"] + seen["second"]) / 2).float()
    assert not torch.equal(seen["policy"], seen["second"])
    assert torch.equal(weights(models["reference"]), expected), "reinforcement leaves it as it was made"
    assert not any(p.requires_grad for p in models["reference"].parameters())
    [entry] = [entry for entry in store.metrics() if entry["stage"] == "soup"]
    far = (expected.double() - seen["second"]).norm() / seen["second"].norm()
    assert entry["distance/second"] == pytest.approx(float(far), rel=1e-6)


@pytest.mark.slow
def test_a_run_that_was_cut_off_keeps_what_was_made(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(salsa(), *SHORT, "checkpoints.every_steps=1")
    whole, undisturbed = train(recipe)
    for place, at in enumerate((4, 5, 7)):  # imitation, the merge itself, reinforcement
        models, store = cut_off_and_resumed(recipe, tmp_path / str(place), at=at)
        assert store.metrics() == undisturbed.metrics()
        for role in ("policy", "second", "reference"):
            assert torch.equal(weights(models[role]), weights(whole[role]))


def test_a_trained_role_can_be_replaced(small: Small, train: Train) -> None:
    recipe = small(salsa(), *SHORT, "soup.role=policy", "models.reference.source=role:policy", "steps=1")
    models, _ = train(recipe)
    assert any(p.requires_grad for p in models["policy"].parameters())
    assert not torch.equal(weights(models["policy"]), weights(models["reference"])), "it went on learning"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("models.reference.source=role:policy",), r"stage soup makes the model of the role 'reference', but its "
         r"source is 'role:policy'; write models.reference.source=made"),
        (("soup.role=nobody",), r"stage soup makes the model of the role 'nobody', but there is none in the recipe"),
        (("soup.of=[policy, policy]",), r"names the role 'policy' twice"),
        (("soup.of=[policy, nobody]",), r"the merge stage needs a model in the role 'nobody'"),
        (("soup.of=[policy, second, critic]",), r"weights has 2 numbers \(0.5, 0.5\) for 3 models"),
        (("soup.of=[policy, reference]",), r"models.reference.source is 'made', but no stage before soup"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_the_run_begins(small: Small, changes: tuple[str, ...], message: str) -> None:
    context = RunContext(small(salsa(), *changes), torch.device("cpu"))
    with pytest.raises(UserError, match=message):
        context.check(context.first_models())


def test_a_model_that_no_stage_makes_is_missed(small: Small) -> None:
    recipe = small(salsa())
    stages = {name: stage for name, stage in recipe.stages.items() if name != "soup"}
    context = RunContext(override(recipe.__class__(**{**vars(recipe), "stages": stages}), []), torch.device("cpu"))
    with pytest.raises(UserError, match=r"no stage before rl, which needs it, makes that model"):
        context.check(context.first_models())


def test_one_step_that_reads_no_tasks() -> None:
    stage = Merging(role="reference", of=("a", "b"), method=Soup())
    assert stage.total_steps([Task(key="k", prompt="p")]) == 1
    assert stage.preview({}, None) == ["reference is merged from a, b by soup"]  # type: ignore[arg-type]
    assert (stage.roles, stage.makes) == ({"a", "b"}, {"reference"})
