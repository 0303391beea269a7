"""CARFT: a policy that is its own critic, compared with the demonstrations of its tasks."""

from collections.abc import Callable

import pytest
import torch

from posttrain.components.penalties.contrast import Contrast
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.errors import UserError
from posttrain.methods.sft_rl.carft import carft
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.recipes.changes import rl_of, rollouts_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.signals import IN_SHOWN, SHOWN, SHOWN_ONLY
from posttrain.stages import Models
from posttrain.stages.rl.shown import shown_signals
from posttrain.stages.sft import demonstration
from posttrain.types import PerToken, Tokens
from tests.builders import trajectory

CPU = torch.device("cpu")
Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_the_projection_learns_values_and_embeddings(
    small: Small, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no critic; the value of states is no longer 0, and the record has cosines and the error of values.

    However small micro-batches are, all rollouts of an update are compared.
    """
    seen: list[int] = []
    in_loss = Contrast.in_loss

    def counted(self: Contrast, tokens: Tokens) -> PerToken | None:
        seen.append(len(tokens.length_N))
        return in_loss(self, tokens)

    monkeypatch.setattr(Contrast, "in_loss", counted)
    limits = ("sft.max_steps=1", "rl.learner.micro_batch_tokens=16")
    recipe = small(carft(), "penalties.contrast.negatives=true", *limits)
    models, store = train(recipe)
    stage = rl_of(recipe)
    assert seen == [stage.prompts * rollouts_of(stage)] * stage.steps * 2
    assert "critic" not in models
    policy = models["policy"]
    assert isinstance(policy, LanguageModelPolicy) and policy.projection is not None
    assert policy.projection.value.weight.abs().max() > 0
    steps = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert all("value/error" in entry for entry in steps)
    assert any(-1 <= entry.get("contrast/cosine_wrong", 9) <= 1 for entry in steps)


def test_a_reference_of_the_same_tokens_agrees_with_the_rollout(small: Small) -> None:
    """A rollout that is the demonstration has all in common with it, and nothing that it lacks."""
    recipe = small(carft())
    context = RunContext(recipe, CPU)
    policy = context.first_models()["policy"]
    task = Arithmetic(size=2, terms=(3, 4)).load()[0]
    same, other = demonstration(policy, task, task.demonstrations[0]), trajectory(3)
    needs = frozenset({SHOWN, SHOWN_ONLY, IN_SHOWN})
    found = shown_signals([same, other], needs, policy, 4096)
    assert found[IN_SHOWN][0].all() and torch.tensor(found[SHOWN_ONLY][0]).isnan().all()
    assert found[SHOWN][0].shape == (same.num_trained, 64) and (found[SHOWN][0] == found[SHOWN][0][0]).all()
    assert all(torch.tensor(found[need][1]).isnan().all() for need in needs), "it has no demonstration"


def test_tasks_without_demonstrations_are_refused(small: Small) -> None:
    recipe = override(small(carft()), ["tasks={kind: countdown, size: 20}"])
    context = RunContext(recipe, CPU)
    with pytest.raises(UserError, match="demonstration"):
        context.check(context.first_models())


def test_a_policy_without_a_projection_gives_no_embedding() -> None:
    recipe = override(carft(), ["models.policy.projection=null", "evaluation.holdout=10"])
    context = RunContext(recipe, CPU)
    with pytest.raises(
        UserError, match=r"needs value before the updates, and the model in the role .policy. has a language head"
    ):
        context.check(context.first_models())


def test_settings_of_the_paper() -> None:
    stage = rl_of(carft())
    assert stage.critic is None and stage.by_role["policy"].critic == "policy"
    assert (stage.learner.epochs, stage.learner.minibatches) == (2, 1)
    assert {name: getattr(p, "coefficient", None) for name, p in stage.penalties.items()} == {
        "kl": 0.05,
        "value": 5.0,
        "contrast": 0.1,
        "agreement": None,
    }
