"""The value model: its loss, where its targets come from, that it learns, and that it resumes."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.search import Found, State
from posttrain.components.search.tree import Tree
from posttrain.errors import UserError
from posttrain.methods.search.rest_rl import rest_rl
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import SCORE
from posttrain.stages import Models
from posttrain.stages.value_model import (
    ValueModelTraining,
    examples_of,
    rated_sequences,
    ratings_of,
    squared_error,
)
from posttrain.training.learner import Learner, Loss, evaluate_examples
from posttrain.training.settings import Learning
from posttrain.types import Rated, Task, Tokens
from tests.builders import tokens, trajectory
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def scored(score_T: torch.Tensor) -> Tokens:
    return replace(tokens([[0.0]] * 3, value_target=[[0.5], [1.0], [0.0]]), signals={SCORE: score_T})


def test_the_loss_by_hand_and_its_gradient() -> None:
    score_T = torch.tensor([0.7, 0.0, -2.0], dtype=torch.float64, requires_grad=True)
    assert squared_error(scored(score_T)).loss_T.tolist() == pytest.approx([0.04, 1.0, 4.0])
    assert torch.autograd.gradcheck(lambda x: squared_error(scored(x)).loss_T, score_T)


def test_targets_are_values_of_states_and_rewards_of_complete_rollouts() -> None:
    states = (State(token_ids=np.array([1, 2]), text="", value=0.4, visits=5),)
    found = Found(trajectories=(trajectory(2), trajectory(3)), values=(1.0, math.nan), states=states)
    assert [(ids.tolist(), value) for ids, value in ratings_of(found)] == [([1, 2], 0.4), ([0, 1, 2, 10, 11], 1.0)]


def value_model_of(folder: Path) -> Any:
    return load_policy("value", Model(source=str(folder), head="reward", trained=True), {}, torch.device("cpu"))


RATED = [(np.array([65 + i % 4, 70 + i % 2, 75]), [0.9, 0.1][i % 2]) for i in range(8)]


def test_regression_on_a_tiny_set(tiny_folder: Path) -> None:
    model = value_model_of(tiny_folder)
    examples = examples_of(RATED)
    loss = Loss(per_token=squared_error, reducer=Sequences(), needs=frozenset({SCORE}))
    learner = Learner(model, override_lr(1e-2), seed=0, num_steps=30)
    losses = [learner.step(examples, loss, progress=0.0).metrics["loss"] for _ in range(30)]
    # a new head returns 0: (0.9^2 + 0.1^2) / 2
    assert losses[0] == pytest.approx(0.41, abs=1e-6)
    assert losses[-1] < 0.01
    said = [float(s[SCORE][0]) for s in evaluate_examples(model, examples, frozenset({SCORE}), max_tokens=999)]
    assert min(said[::2]) > 0.7 and max(said[1::2]) < 0.3


def override_lr(lr: float) -> Learning:
    default = Learning()
    return replace(default, optimizer=replace(default.optimizer, lr=lr))  # type: ignore[type-var]


def test_the_gradient_by_finite_differences(tiny_folder: Path) -> None:
    """Of the head's bias and weight, through the whole of the learner, in float64."""
    model = value_model_of(tiny_folder).double()
    examples = examples_of(RATED[:3])
    loss = Loss(per_token=squared_error, reducer=Sequences(), needs=frozenset({SCORE}))
    learner = Learner(model, Learning(), seed=0, num_steps=1)
    weight = model.get_parameter("value_head.weight")
    with torch.no_grad():
        weight.copy_(torch.linspace(-1, 1, weight.shape[1])[None])
    learner.accumulate(examples, loss, 0.0)
    found = float(weight.grad[0, 3])
    sides = []
    for step in (1e-3, -2e-3):
        with torch.no_grad():
            weight[0, 3] += step
        sides.append(learner.accumulate(examples, loss, 0.0)[0])
    assert abs(found) > 1e-3
    assert found == pytest.approx((sides[0] - sides[1]) / 2e-3, rel=1e-3)


def test_only_whole_completions_have_an_end_token(tiny_folder: Path) -> None:
    model = value_model_of(tiny_folder)
    about = Task(key="k", prompt="ab", rated=(Rated(completion="cd", rating=0.5),))
    [(whole, _)] = rated_sequences(model, [about])
    [(state, _)] = rated_sequences(model, [replace(about, fields={"complete": False})])
    [(prompt, _)] = rated_sequences(
        model, [replace(about, rated=(Rated(completion="", rating=0.5),), fields={"complete": False})]
    )
    assert whole[:-1].tolist() == state.tolist() and whole[-1] in model.tokenizer.end_token_ids
    assert model.tokenizer.decode(state) == "abcd" and model.tokenizer.decode(prompt) == "ab"


def test_what_cannot_be_learned_is_reported(tiny_folder: Path) -> None:
    model = value_model_of(tiny_folder)
    with pytest.raises(UserError, match="none of the 1 tasks has a rated completion"):
        rated_sequences(model, [Task(key="k", prompt="ab")])
    with pytest.raises(UserError, match="context is 64"):
        rated_sequences(model, [Task(key="k", prompt="a" * 70, rated=(Rated(completion="b", rating=1),))])
    with pytest.raises(ValidationError, match="search and reward go together"):
        ValueModelTraining(reducer=Sequences(), search=Tree(value_role=None))
    with pytest.raises(ValidationError, match="gives no targets for one"):
        ValueModelTraining(reducer=Sequences(), search=Tree(), reward=Match())


SHORT = (
    "tasks.terms=[2, 2]",
    "values.search.iterations=2",
    "values.search.samples=2",
    "values.search.sampling.max_tokens=6",
    "values.steps=3",
    "values.batch=3",
    "evaluation.search.iterations=2",
    "evaluation.search.samples=2",
    "evaluation.search.sampling.max_tokens=6",
    "evaluation.sampling.max_tokens=6",
)


def only_values(small: Small) -> Recipe:
    recipe = rest_rl()
    return small(replace(recipe, stages={"values": recipe.stages["values"]}), *SHORT)


def test_a_run_collects_learns_and_answers_by_search(small: Small, train: Train) -> None:
    models, store = train(only_values(small))
    assert models["value"].version > 0 and models["policy"].version == 0
    for entry in store.metrics():
        assert entry["search/rollouts"] >= 2 and "value_error" in entry and 0.0 <= entry["value_target"] <= 1.0
    before, after = store.evaluations()
    assert "searched" not in before, "there is no value model yet"
    assert after["searched"]["tasks"] == 5 and after["searched"]["rollouts"] <= 4
    assert any("no answers by search yet" in event["message"] for event in store.events())


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(only_values(small), ["checkpoints.every_steps=1"])
    whole, record = train(recipe)
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=2)
    assert [json.dumps(e) for e in again.metrics()] == [json.dumps(e) for e in record.metrics()]
    for name, tensor in whole["value"].state_dict().items():
        assert torch.equal(tensor, resumed["value"].state_dict()[name]), name
