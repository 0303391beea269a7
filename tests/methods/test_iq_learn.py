"""IQ-learn on a tiny new model: it trains, and implied rewards distinguish demonstrations from other completions."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from posttrain.components.objectives.iq_learn import IQLearn
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.methods.sft_rl.iq_learn import ROWS, iq_learn
from posttrain.policies import Policy
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.sft import demonstration
from posttrain.training.packing import example_of, pack, tokens_of
from posttrain.types import Task

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_it_trains(small: Small, train: Train) -> None:
    models, store = train(small(iq_learn(), "tasks.size=100", "sft.batch=16", "sft.max_steps=4", "lr=3e-3"))
    squares = [entry["implied_reward/squared"] for entry in store.metrics()]
    assert squares[-1] < squares[0]
    for entry in store.metrics():
        assert entry["loss"] > 0.01 * entry["implied_reward/squared"] > 0.0
        assert abs(entry["implied_reward"]) <= entry["implied_reward/squared"] ** 0.5
    assert models["policy"].version == 4
    assert ROWS == (221,)


def test_it_differs_from_sft_by_its_objective() -> None:
    assert sft_of(iq_learn()).objective == IQLearn(coefficient=0.01, gamma=1.0)


def score(policy: Policy, task: Task, text: str) -> float:
    """Sum of the rewards that the logits imply."""
    objective = IQLearn()
    batch = pack([example_of(demonstration(policy, task, text), {})], np.ones(1, np.float32), torch.device("cpu"))
    with torch.no_grad():
        signals = policy.evaluate(batch.packed, batch.positions_T, objective.needs)
        return float(objective.reward(tokens_of(batch, signals, 0.0)).sum())


@pytest.mark.slow
def test_demonstrations_get_more_than_what_is_none(small: Small, train: Train) -> None:
    """Each unseen demonstration against its own letters in another order; before training it is a coin's toss."""
    recipe = small(iq_learn(), "tasks.size=400", "sft.batch=16", "sft.epochs=2", "lr=3e-3")
    models, store = train(recipe)
    rng = np.random.default_rng(0)
    wins = []
    for task in Arithmetic(size=60, seed=9, terms=(3, 4)).load():
        text = task.demonstrations[0]
        shuffled = "".join(rng.permutation(list(text)))
        wins.append(score(models["policy"], task, text) > score(models["policy"], task, shuffled))
    assert np.mean(wins) > 0.95
    losses = [entry["loss"] for entry in store.metrics()]
    assert np.mean(losses[-5:]) < np.mean(losses[:3]) - 1.0
