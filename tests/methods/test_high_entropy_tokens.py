"""Learning from the most uncertain tokens of a step, on a tiny new model."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.policy_gradient.high_entropy_tokens import ROWS, high_entropy_tokens
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return float(sum(map(ord, completion)) % 2)\n"


def of_tokens(store: RunStore, step: int, name: str) -> np.ndarray:
    """[T] a column of every token that was learned from in a step."""
    rows = [row for row in store.rollouts(step) if row["dropped_reason"] is None]
    return np.array([x for row in rows for x in row[name] if x is not None])


@pytest.mark.slow
def test_it_trains_on_the_most_uncertain_tokens_of_the_step(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(high_entropy_tokens(), "lr=1e-2"), tmp_path, VARIED))
    assert models["policy"].version == 3
    for step, entry in enumerate(store.metrics(), start=1):
        advantage_T, entropy_T = of_tokens(store, step, "advantage"), of_tokens(store, step, "old_entropy")
        assert len(advantage_T) == len(entropy_T) == entry["trained_tokens"]
        kept_T = advantage_T != 0
        count = math.ceil(round(0.2 * len(kept_T), 6))
        last = np.sort(entropy_T)[-count]
        assert (entropy_T[kept_T] > 0.999 * last).all() and (entropy_T[~kept_T] < last).all()
        # Rollouts at one task begin in the same state, so that there may be a few more.
        assert count <= kept_T.sum() <= count + 3
        assert entry["kept_entropy"] == pytest.approx(entropy_T[kept_T].mean(), rel=1e-5)
    assert ROWS == (280,)


@pytest.mark.slow
def test_the_entropy_is_that_of_the_policy_that_is_updated(small: Small, train: Train, tmp_path: Path) -> None:
    """The one before the update, which is the one of the forward pass that learns."""
    changes = ("lr=1e-2", "penalties={bonus: {kind: entropy, coefficient: 1e-6}}")
    _, store = train(with_reward(small(high_entropy_tokens(), *changes), tmp_path, VARIED))
    for step in (1, 2, 3):
        before, learning = of_tokens(store, step, "old_entropy"), of_tokens(store, step, "entropy")
        assert before == pytest.approx(learning, abs=1e-4)


def test_the_loss_is_a_mean_over_kept_tokens(small: Small, train: Train, tmp_path: Path) -> None:
    """With ratios of 1 it is minus the mean of their advantages, which are those of GRPO times 5 or so."""
    _, store = train(with_reward(small(high_entropy_tokens(), "steps=1"), tmp_path, VARIED))
    _, all_tokens = train(with_reward(small(high_entropy_tokens(), "steps=1", "advantage.share=1"), tmp_path, VARIED))
    advantage_T, plain_T = of_tokens(store, 1, "advantage"), of_tokens(all_tokens, 1, "advantage")
    kept_T = advantage_T != 0
    assert store.metrics()[0]["loss"] == pytest.approx(-plain_T[kept_T].mean(), abs=1e-5)


@pytest.mark.slow
def test_how_a_step_is_cut_changes_nothing(small: Small, train: Train, tmp_path: Path) -> None:
    weights, losses = [], []
    for tokens in (16, 4096):
        cut = small(high_entropy_tokens(), "steps=1", f"learner.micro_batch_tokens={tokens}", "lr=1e-3")
        models, store = train(with_reward(cut, tmp_path, VARIED))
        weights.append(models["policy"].state_dict())
        losses.append(store.metrics()[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    for name, weight in weights[0].items():
        assert weight.allclose(weights[1][name], atol=2e-4), name


def test_compared_with_the_initial_model(small: Small, train: Train, tmp_path: Path) -> None:
    """At first it is the same model and would choose the same tokens; later it would not."""
    beside = ("models.reference.source=role:policy", "advantage.beside=reference", "lr=3e-2")
    models, store = train(with_reward(small(high_entropy_tokens(), *beside), tmp_path, VARIED))
    first, *_, last = [entry["overlap"] for entry in store.metrics()]
    assert first == 1.0 > last
    assert models["reference"].version == 0
