"""Reg-GRPO on a tiny new model: the first pass is the floor's, later ones regress, and nothing is clipped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.methods.policy_gradient.reg_grpo import ROWS, reg_grpo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return float(sum(map(ord, completion)) % 2)\n"
EQUAL = "def score(completion):\n    return 1.0\n"


@pytest.mark.slow
def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(reg_grpo(), "lr=1e-2"), tmp_path, VARIED))
    assert models["policy"].version == 3 * 4
    assert models["reference"].version == 0
    for entry in store.metrics():
        assert 0.0 < entry["floored"] < 1.0, "the first of four passes is on policy, later ones are not"
        assert entry["log_ratio_std"] > 0.1
        assert entry["kl/estimate"] > 0.0
        assert "clip_fraction" not in entry
    assert ROWS == (34,)


def test_on_policy_the_error_is_that_of_predicting_nothing(small: Small, train: Train, tmp_path: Path) -> None:
    """Advantages in units of the unbiased std of four have a mean square of 3 / 4."""
    recipe = small(reg_grpo(), "learner.epochs=1", "steps=1")
    _, store = train(with_reward(recipe, tmp_path, VARIED))
    (entry,) = store.metrics()
    assert entry["squared_error"] == pytest.approx(0.75, abs=1e-2)
    assert entry["floored"] == 1.0


@pytest.mark.slow
def test_equal_rewards_move_nothing_but_by_the_penalty(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(small(reg_grpo(), "lr=1e-2", "penalties={}"), ["filters={}"])
    _, store = train(with_reward(recipe, tmp_path, EQUAL))
    assert [entry["loss"] for entry in store.metrics()] == [0.0] * 3
    assert [entry["gradient_norm"] for entry in store.metrics()] == [0.0] * 3


@pytest.mark.slow
def test_only_the_penalty_holds_the_policy_back(small: Small, train: Train, tmp_path: Path) -> None:
    """The size of log-ratios is not in the regression, and nothing is clipped: many passes carry the policy away."""

    def moved(coefficient: float) -> float:
        changes = ("steps=1", "lr=1e-2", "learner.epochs=16", f"penalties.kl.coefficient={coefficient}")
        _, store = train(with_reward(small(reg_grpo(), *changes), tmp_path, VARIED))
        return float(store.metrics()[0]["kl/estimate"])

    assert moved(0.0) > 4 * moved(10.0) > 0.0


def test_its_parts() -> None:
    stage = rl_of(reg_grpo())
    assert stage.roles == {"policy", "reference"}
    assert stage.objective.whole_groups
