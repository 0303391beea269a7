"""The outcome model: its loss by hand, its examples, and that it learns which rollouts are right."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.regex import Regex
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import SCORE
from posttrain.stages import Models
from posttrain.stages.outcome_model import OutcomeModelTraining, cross_entropy, examples_of
from posttrain.types import Group, Tokens
from tests.builders import score, tokens, trajectory

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def scored(score_T: torch.Tensor) -> Tokens:
    """A correct and an incorrect rollout."""
    return replace(tokens([[0.0]] * 2, reward_N=[1.0, 0.0]), signals={SCORE: score_T})


def test_the_loss_by_hand_and_its_gradient() -> None:
    """Odds of 3 to 1: -log 3/4 where it is right, -log 1/4 where it is wrong."""
    score_T = torch.full((2,), math.log(3), dtype=torch.float64, requires_grad=True)
    assert cross_entropy(scored(score_T)).loss_T.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])
    assert torch.autograd.gradcheck(lambda x: cross_entropy(scored(x)).loss_T, score_T)
    assert torch.isfinite(cross_entropy(scored(torch.tensor([-1e4, 1e4]))).loss_T).all()


def test_an_example_is_the_whole_rollout_with_its_last_token_trained() -> None:
    right, wrong = trajectory(3).scored(score(1.0)), trajectory(2).scored(score(0.0))
    first, second = examples_of([Group(trajectories=(right, wrong))])
    assert (first.solved, second.solved) == (True, False)
    assert first.positions.tolist() == [len(right.token_ids) - 1] and first.turn_T.tolist() == [0]
    np.testing.assert_array_equal(second.token_ids, wrong.token_ids)


def test_it_learns_which_rollouts_of_the_policy_are_right(small: Small, train: Train) -> None:
    stage = OutcomeModelTraining(
        rollout=Independent(n=4, sampling=Sampling(max_tokens=4)),
        reward=Regex(pattern="^[0-9A-Za-z]"),
        reducer=Sequences(),
        steps=3,
        batch=3,
    )
    recipe = small(grpo(), "rl.steps=1")
    recipe = replace(recipe, stages={"outcome_model": stage, **recipe.stages})
    outcome = Model(source="role:policy", head="reward", trained=True)
    models, store = train(replace(recipe, models={**recipe.models, "outcome": outcome}))
    assert models["outcome"].version == 3
    own = [entry for entry in store.metrics() if entry["stage"] == "outcome_model"]
    assert own[0]["loss"] == pytest.approx(math.log(2), abs=1e-6), "a new head gives 0"
    assert all(0.0 <= entry["outcome_accuracy"] <= 1.0 for entry in own)
