"""Resa: what is learned comes through the sparse autoencoder alone, and reaches only the layers after it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.errors import UserError
from posttrain.methods.sft_rl.resa import resa
from posttrain.models import LoRA
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.sparse_coder import Sizes, SparseCoder
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.sae import Averaged, SparseAutoencoder
from posttrain.stages.sae_tuning import SAETuning, noisy
from posttrain.stages.states import answered
from tests.stages.resuming import cut_off_and_resumed

CPU = torch.device("cpu")
Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]
SHORT = (
    "stages.sae.max_steps=3",
    "stages.sae.latents=64",
    "stages.sae.k=4",
    "stages.sae.batch=4",
    "stages.tune.max_steps=2",
    "stages.tune.batch=4",
    "stages.tune.learner.optimizer.lr=1e-2",
)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A model of three layers."""
    return new_folder(tmp_path / "three", layers=3, width=32, heads=2, kv_heads=1, context=64)


def adapters(policy: Any) -> dict[str, torch.Tensor]:
    """The halves of adapters that begin at 0."""
    return {name: p.detach() for name, p in policy.named_parameters() if "lora_B" in name}


def test_only_layers_after_the_replaced_one_change(small: Small, train: Train, three: Path) -> None:
    """Of three layers the output of the second is replaced: adapters of the third alone leave 0."""
    layers = ("stages.sae.layer=1", "stages.tune.layer=1")
    models, store = train(small(resa(), f"models.policy.source={three}", *SHORT, *layers))
    moved = {name: bool(x.abs().max() > 0) for name, x in adapters(models["tuned"]).items()}
    assert len(moved) == 21 and all(changed == (".layers.2." in name) for name, changed in moved.items())
    base, result = models["base"], models["policy"]
    assert isinstance(result, LanguageModelPolicy) and result.lora is None
    changed = {n for n, p in result.body.named_parameters() if not torch.equal(p, base.body.get_parameter(n))}
    assert changed and all(".layers.2." in name for name in changed), "the sparse autoencoder is not in it"
    entries = {stage: [e for e in store.metrics() if e["stage"] == stage] for stage in ("sae", "tune")}
    assert len(entries["sae"]) == 3 and entries["tune"][0]["nats"] > 0


def test_a_perfect_autoencoder_teaches_nothing(
    small: Small, train: Train, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def perfect(self: SparseCoder, state_RD: torch.Tensor) -> torch.Tensor:
        return state_RD + 0.0 * sum(parameter.sum() for parameter in self.parameters())

    monkeypatch.setattr(SparseCoder, "forward", perfect)
    _, store = train(small(resa(), f"models.policy.source={three}", *SHORT))
    first, _ = (e["nats"] for e in store.metrics() if e["stage"] == "tune")
    assert first == pytest.approx(0.0, abs=1e-6)


def test_steps_of_the_sign_are_averaged() -> None:
    """The iterate moves by the rate in every number, and the model is the mean of the iterates, with rows of norm 1."""
    coder = SparseCoder("sae", Sizes(width=4, latents=8, k=2), seed=3)
    averaged = Averaged(coder, 0.1)
    before = averaged.iterates["encoder"].clone()
    states = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    first = averaged.step(states, first=True)
    torch.testing.assert_close((averaged.iterates["encoder"] - before).abs(), torch.full((8, 4), 0.1))
    torch.testing.assert_close(coder.encoder.detach(), averaged.iterates["encoder"])
    one = averaged.iterates["encoder"].clone()
    averaged.step(states, first=False)
    torch.testing.assert_close(coder.encoder.detach(), (one + averaged.iterates["encoder"]) / 2)
    torch.testing.assert_close(coder.decoder.norm(dim=1), torch.ones(8))
    averaged.lr = 0.01
    losses = [averaged.step(states, first=False) for _ in range(60)]
    assert losses[-1] < 0.5 * first


def test_noise_moves_states_as_far_as_the_reconstruction_does() -> None:
    draw = torch.Generator().manual_seed(0)
    states, found = (torch.randn(6, 5, generator=draw) for _ in range(2))
    moved = noisy(states, found, 1)
    torch.testing.assert_close((moved - states).norm(dim=1), (found - states).norm(dim=1))
    assert torch.equal(moved, noisy(states, found, 1)) and not torch.equal(moved, noisy(states, found, 2))


def test_texts_are_prompts_with_answers_and_nothing_else(small: Small) -> None:
    policy = RunContext(small(resa()), CPU).first_models()["policy"]
    tasks = Arithmetic(size=2, terms=(3, 4)).load()
    [first, _] = answered(policy, tasks, "#### {answer}")
    text = policy.tokenizer.decode(first.token_ids[:-1])
    assert text.startswith(str(tasks[0].prompt)) and text.endswith(f"#### {tasks[0].answer}")
    assert first.positions.tolist() == np.arange(1, len(first.token_ids)).tolist()
    with pytest.raises(UserError, match="none of the 2 tasks has an answer"):
        answered(policy, [replace(task, answer=None) for task in tasks], "#### {answer}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("stages.tune.layer=2", "layer 2, the last of 3: no weight after it could learn; give 0 to 1"),
        ("stages.sae.layer=3", "layer 3 is named, and the model has 3"),
        ("stages.sae.k=65", "keeps k=65 of 64 latents"),
        ("models.policy.source=TINY", "layer 0, the last of 1: no weight after it could learn"),
    ],
)
def test_mistakes(small: Small, three: Path, tiny_folder: Path, change: str, message: str) -> None:
    recipe = small(resa(), *SHORT, f"models.policy.source={three}")
    context = RunContext(override(recipe, [change.replace("TINY", str(tiny_folder))]), CPU)
    with pytest.raises(UserError, match=message):
        context.check(context.first_models())


def test_settings_of_the_paper() -> None:
    """32 latents at a time, steps of 5e-3 / sqrt(latents / 2^14), adapters of rank 32; a sum over tokens."""
    recipe = resa()
    coding, tuning = recipe.stages["sae"], recipe.stages["tune"]
    assert isinstance(coding, SparseAutoencoder) and isinstance(tuning, SAETuning)
    assert (coding.of, coding.k, coding.lr) == ("source", 32, None)
    assert recipe.models["tuned"].lora == LoRA(rank=32, alpha=128.0)
    assert tuning.reducer.weights(np.array([3, 5]), np.array([0, 1])).tolist() == [0.5, 0.5]


@pytest.mark.slow
def test_a_run_that_was_cut_off_is_the_same(small: Small, train: Train, three: Path, tmp_path: Path) -> None:
    recipe = small(resa(), f"models.policy.source={three}", *SHORT, "checkpoints.every_steps=1", "rl.steps=1")
    whole, undisturbed = train(recipe)
    for place, at in enumerate((5, 7)):  # the autoencoder, the tuning
        models, store = cut_off_and_resumed(recipe, tmp_path / str(place), at=at)
        assert store.metrics() == undisturbed.metrics()
        for role in ("policy", "sae"):
            weights = zip(models[role].parameters(), whole[role].parameters(), strict=True)
            assert all(torch.equal(a, b) for a, b in weights)
