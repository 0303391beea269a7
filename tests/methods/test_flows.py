"""The recipes with flows: what they change, that they learn, and that a run goes on bit for bit."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from posttrain.methods.flow.awm import ROWS as AWM_ROWS
from posttrain.methods.flow.awm import awm
from posttrain.methods.flow.ddpo import ddpo
from posttrain.methods.flow.reinflow import ROWS, reinflow
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import Model
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.two_modes import two_modes
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]

SMALL = (
    "threads=1",
    "evaluation.holdout=20",
    "matching.max_steps=3",
    "matching.batch=8",
    "rl.steps=3",
    "rl.prompts=3",
    "models.policy.shape.steps=4",
    "models.policy.shape.width=16",
)
SIZES = ("tasks.size=60", "checkpoints.every_steps=2")


def small(recipe: Recipe, *changes: str) -> Recipe:
    size = "matching.tasks.size=60" if recipe.name == "reinflow" else "rl.rollout.n=4"
    return override(recipe, [*SMALL, *SIZES, size, *changes])


RECIPES = (ddpo, awm, reinflow)
every_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)


def test_reinflow_has_no_reference() -> None:
    assert (AWM_ROWS, ROWS) == ((109,), (71,))
    assert "reference" in ppo().models and set(reinflow().models) == {"policy", "critic"}
    assert ddpo().stages["rl"].objective == grpo().stages["rl"].objective  # type: ignore[attr-defined]


@every_recipe
def test_it_runs_and_is_recorded(recipe: Callable[[], Recipe], train: Train) -> None:
    models, store = train(small(recipe(), "rl.learner.minibatches=1"))
    assert models["policy"].version > 3
    assert [e["name"] for e in store.evaluations()] == ["before", "matching", "rl"]
    row = store.rollouts(6)[0]
    written = [v for v in row["vectors"] if v is not None]
    flow = models["policy"].shape  # type: ignore[union-attr]
    points = flow.steps + 1
    assert len(written) == (points if recipe is not reinflow else 4)
    assert all(len(v) == max(flow.condition, flow.dims * (points if recipe is reinflow else 1)) for v in written)
    ratios = [r for row in store.rollouts(4) for r in row["ratio"] or () if r is not None]
    assert ratios and np.allclose(ratios, 1.0, atol=1e-4), "the learner starts where the sampler was"


def test_samples_of_awm_are_made_without_noise_in_the_steps(train: Train) -> None:
    _, store = train(small(awm()))
    for metrics in store.metrics()[3:]:
        assert metrics["ratio"] == pytest.approx(1.0)
        assert metrics["matching_error"] > 0 and "reference/distance" in metrics
    assert store.metrics()[3]["reference/distance"] == pytest.approx(0.0, abs=1e-9)


def mode_mass(recipe: Recipe, train: Train) -> tuple[float, float]:
    """Share of held-out draws in the rewarded mode, after imitation and at the end."""
    _, store = train(recipe)
    _, imitated, final = store.evaluations()
    return imitated["accuracy"], final["accuracy"]


LEARNING = (
    "threads=1",
    "evaluation.holdout=200",
    "tasks.size=1000",
    "matching.max_steps=150",
    "models.policy.shape.steps=6",
    "rl.steps=12",
    "rl.prompts=8",
    "lr=2e-3",
)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [ddpo, awm], ids=["ddpo", "awm"])
def test_the_rewarded_mode_grows(recipe: Callable[[], Recipe], train: Train) -> None:
    changes = [c.replace("lr=", "rl.learner.optimizer.lr=") for c in LEARNING]
    before, after = mode_mass(override(recipe(), changes), train)
    assert 0.25 < before < 0.65, "imitation finds both modes"
    assert after > before + 0.15


@pytest.mark.slow
def test_a_flow_learns_to_reach_the_target(train: Train) -> None:
    recipe = override(reinflow(), ["threads=1", "evaluation.holdout=50", "matching.max_steps=150", "rl.steps=15",
                                   "rl.learner.optimizer.lr=1e-3"])  # fmt: skip
    _, store = train(recipe)
    _, imitated, final = store.evaluations()
    assert final["mean_score"] > imitated["mean_score"] + 0.1


@pytest.mark.parametrize("recipe", [ddpo, awm], ids=lambda recipe: recipe.__name__)
def test_every_place_of_every_chain_counts_as_sampled(recipe: Callable[[], Recipe], train: Train) -> None:
    """3 conditions of 4 chains of the noise and 4 steps, whether those are what is learned from or draws on their ends
    are.
    """
    _, store = train(small(recipe()))
    assert [entry["sampled_tokens"] for entry in store.metrics()[3:]] == [3 * 4 * (4 + 1)] * 3


def test_flows_that_are_read_from_a_folder_keep_their_noise() -> None:
    policy = Model(source="somewhere/flow", trained=True)
    mine = replace(two_modes(), models={"policy": policy})
    assert ddpo(mine).models["policy"] == awm(mine).models["policy"] == reinflow(mine).models["policy"] == policy
