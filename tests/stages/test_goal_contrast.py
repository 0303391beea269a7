"""The contrast of states: its bounds, its positions, its gradient, and the loss of a run with it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posttrain.methods.reward_models.goal_conditioned import goal_conditioned
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.reward_model import GoalContrast

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]
EAST, NORTH = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def loss(chosen: torch.Tensor, rejected: torch.Tensor, **settings: object) -> float:
    contrast = GoalContrast(positions=4, **settings)  # type: ignore[arg-type]
    draws = torch.rand(1, 16, generator=torch.Generator().manual_seed(0))
    return float(contrast([chosen], [rejected], draws))


def test_separated_equal_and_orthogonal_states_have_the_losses_of_the_sheet() -> None:
    """With beta .5: opposite states .313, equal ones .813, states at right angles to all others about .693."""
    east, west = EAST.repeat(5, 1), -EAST.repeat(3, 1)
    assert loss(east, west) == pytest.approx(-math.log(sigmoid(1)), abs=1e-6) == pytest.approx(0.3133, abs=1e-4)
    assert loss(east, east) == pytest.approx(0.8133, abs=1e-4)
    assert loss(east, NORTH.repeat(3, 1)) == pytest.approx(-0.5 * (math.log(sigmoid(1)) + math.log(0.5)), abs=1e-6)
    assert loss(east, 7 * west) == pytest.approx(loss(east, west)), "only directions count"
    assert loss(east, west, beta=0.0) == 0.0


def test_the_mean_is_taken_over_pairs_before_the_logarithm() -> None:
    east, west = EAST.repeat(2, 1), -EAST.repeat(2, 1)
    draws = torch.rand(2, 16, generator=torch.Generator().manual_seed(1))
    found = GoalContrast(positions=4)([east, east], [west, east], draws)
    unlike = (sigmoid(-1) + sigmoid(1)) / 2
    assert float(found) == pytest.approx(-0.5 * (math.log(sigmoid(1)) + math.log(1 - unlike)), abs=1e-6)


def test_positions_count_from_the_end() -> None:
    """Of 10 tokens, u of 0, .35 and .999 are the last, the fourth from the end and the first."""
    contrast = GoalContrast()
    assert contrast.places(torch.tensor([0.0, 0.35, 0.999]), 10).tolist() == [9, 6, 0]
    assert contrast.places(torch.tensor([1.0]), 10).tolist() == [0]
    early = replace(contrast, percentile=0.5).places(torch.linspace(0, 0.999, 50), 10)
    assert early.max() == 4 and early.min() == 0
    assert contrast.places(torch.tensor([0.0, 0.9]), 1).tolist() == [0, 0]


def test_averaged_goals_are_one_state() -> None:
    """Two states at a right angle: their average is at 45 degrees to both."""
    both = torch.stack([EAST, NORTH])
    contrast = GoalContrast(positions=2, averaged=True)
    assert float(contrast._mean(both, both)) == pytest.approx(sigmoid(math.sqrt(0.5)))
    assert float(replace(contrast, averaged=False)._mean(both, both)) == pytest.approx((sigmoid(1) + 0.5) / 2)


@pytest.mark.parametrize("averaged", [False, True])
def test_the_gradient_by_finite_differences(averaged: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    chosen, rejected = (torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    draws = torch.rand(1, 8, generator=generator, dtype=torch.float64)
    contrast = GoalContrast(positions=2, averaged=averaged)

    def of(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return contrast([a], [b], draws)

    assert torch.autograd.gradcheck(of, (chosen.requires_grad_(), rejected.requires_grad_()))


def test_a_run_adds_it_to_the_loss_of_its_pairs(small: Small, train: Train, tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "model", layers=1, width=32, heads=2, kv_heads=1, context=200)
    recipe = small(goal_conditioned(), "reward_model.max_steps=2", "reward_model.batch=4", f"model={folder}")
    recipe = replace(recipe, stages={"reward_model": recipe.stages["reward_model"]})
    models, store = train(recipe)
    first = next(iter(store.metrics()))
    assert first["loss"] == pytest.approx(math.log(2) + first["contrast"], abs=1e-5), "a new head gives 0"
    assert 0.3 < first["contrast"] < 1.32 and models["reward"].version == 2
    plain = override(recipe, ["reward_model.contrast=null"])
    assert "contrast" not in next(iter(train(replace(plain, name="plain"))[1].metrics()))
