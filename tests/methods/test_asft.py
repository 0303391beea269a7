"""ASFT and its ablations, on a tiny new model and on logits by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives import Objective
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.objectives.unified import DFT
from posttrain.components.penalties.exact_kl import ExactKL
from posttrain.methods.sft_rl.asft import ROWS, asft
from posttrain.policies.folder import new_folder
from posttrain.recipes.changes import sft_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import Signal
from posttrain.stages import Models
from tests.builders import tokens

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SIZES = ("tasks.size=200", "tasks.terms=[2, 2]", "sft.batch=16")


def loss_on(logits_V: Tensor, base_V: Tensor, chosen: int, objective: Objective, coefficient: float) -> Tensor:
    """The loss of one token, as the recipe puts it together."""
    logp_V, base_logp_V = logits_V.log_softmax(0), base_V.log_softmax(0)
    these = replace(
        tokens([[-1.0]]),
        logp_T=logp_V[chosen : chosen + 1],
        signals={Signal("forward_kl", of="reference"): (base_logp_V.exp() * (base_logp_V - logp_V)).sum()[None]},
    )
    term = ExactKL(coefficient=coefficient).in_loss(these)
    return (objective(these).loss_T + term.loss_T).sum()


def slope(objective: Objective, coefficient: float, logits_V: Tensor, base_V: Tensor, chosen: int = 0) -> Tensor:
    leaf_V = logits_V.clone().requires_grad_()
    (found_V,) = torch.autograd.grad(loss_on(leaf_V, base_V, chosen, objective, coefficient), leaf_V)
    return found_V


LOGITS = torch.tensor([0.0, math.log(3.0)], dtype=torch.float64)
"""A quarter and three quarters; the base is undecided, and the first one is demonstrated."""
BASE = torch.zeros(2, dtype=torch.float64)


def test_the_loss_and_its_gradient_by_hand() -> None:
    """p (-log p) = ln 4 / 4, KL = ln(4 / 3) / 2; gradient p (softmax - one-hot) + lambda (softmax - base)."""
    divergence = 0.5 * math.log(4 / 3)
    assert loss_on(LOGITS, BASE, 0, DFT, 0.2).item() == pytest.approx(math.log(4) / 4 + 0.2 * divergence)
    assert slope(Likelihood(), 0.0, LOGITS, BASE).tolist() == pytest.approx([-0.75, 0.75])
    assert slope(DFT, 0.0, LOGITS, BASE).tolist() == pytest.approx([-0.25 * 0.75, 0.25 * 0.75])
    assert slope(Likelihood(), 0.2, LOGITS, BASE).tolist() == pytest.approx([-0.75 - 0.05, 0.75 + 0.05])
    assert slope(DFT, 0.2, LOGITS, BASE).tolist() == pytest.approx([-0.1875 - 0.05, 0.1875 + 0.05])


def test_a_token_that_cannot_be_is_left_to_the_anchor() -> None:
    far = torch.tensor([0.0, 60.0], dtype=torch.float64)
    assert slope(DFT, 0.0, far, BASE).abs().max() < 1e-24
    assert slope(Likelihood(), 0.0, far, BASE).tolist() == pytest.approx([-1.0, 1.0])
    assert slope(DFT, 0.2, far, BASE).tolist() == pytest.approx([-0.1, 0.1])


def test_at_the_base_it_is_dft() -> None:
    # Softmax minus base is 0 but for the rounding of e^x, which is the processor's.
    torch.testing.assert_close(slope(DFT, 5.0, LOGITS, LOGITS), slope(DFT, 0.0, LOGITS, LOGITS), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("changes", "weighed", "coefficient"), [
    ((), True, 0.05),
    (("regularizers.anchor.coefficient=0",), True, 0.0),
    (("objective=likelihood",), False, 0.05),
])  # fmt: skip
def test_modes_are_a_path_away(changes: tuple[str, ...], weighed: bool, coefficient: float) -> None:
    stage = sft_of(override(asft(), changes))
    assert stage.objective == (DFT if weighed else Likelihood())
    assert stage.regularizers == {"anchor": ExactKL(coefficient=coefficient)}
    assert stage.roles == {"policy", "reference"}


def test_it_trains(small: Small, train: Train) -> None:
    models, store = train(small(asft(), *SIZES, "sft.max_steps=3", "lr=3e-3"))
    distances = [entry["anchor/nats"] for entry in store.metrics()]
    assert distances[0] == pytest.approx(0.0, abs=1e-6)
    assert distances[2] > distances[1] > abs(distances[0])
    assert 0.0 < store.metrics()[0]["coefficient"] < 0.02, "a new model finds every token about as likely as any"
    assert (models["policy"].version, models["reference"].version) == (3, 0)
    assert ROWS == (156,)


def test_the_first_step_is_that_of_dft(small: Small, train: Train) -> None:
    recipe = small(asft(), *SIZES, "sft.max_steps=1")
    changed = (override(recipe, [f"regularizers.anchor.coefficient={c}"]) for c in (0.0, 9.0))
    dft, anchored = (train(recipe)[1].metrics()[0] for recipe in changed)
    for name in ("loss", "gradient_norm"):
        assert anchored[name] == pytest.approx(dft[name], rel=1e-4) and dft[name] > 1e-3


@pytest.mark.slow
def test_the_anchor_holds(small: Small, train: Train) -> None:
    """The further, the less it weighs; without weight the distance grows and grows, with too much there is none."""
    found = {}
    for coefficient in (0.0, 1.0, 1000.0):
        changes = (*SIZES, "sft.epochs=4", "lr=5e-3", f"regularizers.anchor.coefficient={coefficient}")
        _, store = train(small(asft(), *changes))
        found[coefficient] = [entry["anchor/nats"] for entry in store.metrics()]
    last = {coefficient: sum(nats[-5:]) / 5 for coefficient, nats in found.items()}
    assert last[0.0] > 1.2 * found[0.0][len(found[0.0]) // 4] > 0.1, "it grows"
    assert last[1000.0] < 0.1 * last[1.0] < 0.01 * last[0.0], last


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_the_anchor_holds_where_tokens_are_sampled_too(
    small: Small, train: Train, tmp_path: Path, direction: str
) -> None:
    """In the rl stage: nothing is rewarded here, so that the anchor alone pulls the policy to another new model."""
    base = new_folder(tmp_path / "base", layers=1, width=32, heads=2, kv_heads=1, context=64, seed=5)
    changes = ("penalties.anchor.kind=exact_kl", "penalties.anchor.coefficient=1", f"models.reference.source={base}",
               f"penalties.anchor.direction={direction}", "filters={}", "lr=3e-3", "rollout.sampling.temperature=0.7",
               "steps=4")  # fmt: skip
    _, store = train(small(None, *changes))
    distances = [entry["anchor/nats"] for entry in store.metrics()]
    assert {entry["reward"] for entry in store.metrics()} == {0.0}
    assert 0.0 < distances[3] < 0.8 * distances[0]
    assert all("kl/reference" not in entry for entry in store.metrics()), "it is no column"
