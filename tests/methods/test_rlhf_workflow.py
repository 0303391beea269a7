"""RLHF Workflow on a tiny new model: what is sampled, paired, compared with, and saved."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.methods.preference.rlhf_workflow import rlhf_workflow, with_reward_model
from posttrain.recipes.catalogue import entries
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("max_steps=2", "tasks.terms=[2, 2]", "tasks.digits=[1, 1]", "reward_model.batch=8", "rl.audit.most_fooled=1")
ONE_UPDATE = ("rl.learner.epochs=1", "rl.learner.minibatches=1")
AT_THE_REFERENCE = math.log(2)
"""The loss of a pair between which policy and reference do not differ, whatever the label smoothing."""


def rounds(store: RunStore) -> list[dict[str, float]]:
    return [entry for entry in store.metrics() if entry["stage"] == "rl"]


@pytest.mark.slow
def test_a_round_learns_from_the_best_and_the_worst_that_its_policy_wrote(small: Small, train: Train) -> None:
    models, store = train(small(rlhf_workflow(), *SHORT))
    updates = 2 * 8
    assert models["reward"].version == 2
    assert models["policy"].version <= 3 * updates
    for step in (3, 4, 5):
        rows = store.rollouts(step)
        groups: dict[int, list[dict[str, object]]] = {}
        by_task: dict[str, list[float]] = {}
        for row in rows:
            by_task.setdefault(row["task_key"], []).append(row["reward"])
            if row["dropped_reason"] is None:
                groups.setdefault(row["group_index"], []).append(row)
        assert groups
        for pair in groups.values():
            assert len(pair) == 2
            everybody = by_task[str(pair[0]["task_key"])]
            assert sorted(float(str(row["reward"])) for row in pair) == [min(everybody), max(everybody)]


@pytest.mark.slow
def test_each_round_samples_from_the_policy_that_the_round_before_left(small: Small, train: Train) -> None:
    _, store = train(small(rlhf_workflow(), *SHORT, *ONE_UPDATE))
    versions = [{row["version"] for row in store.rollouts(step)} for step in (3, 4, 5)]
    assert all(len(seen) == 1 for seen in versions)
    assert [seen.pop() for seen in versions] == [0, 1, 2]


@pytest.mark.slow
def test_the_reference_is_the_policy_as_the_round_began(small: Small, train: Train) -> None:
    _, store = train(small(rlhf_workflow(), *SHORT, *ONE_UPDATE, "rl.learner.optimizer.lr=1e-2"))
    assert [entry["loss"] for entry in rounds(store)] == pytest.approx([AT_THE_REFERENCE] * 3, abs=1e-5)


@pytest.mark.slow
def test_or_it_is_the_first_policy(small: Small, train: Train) -> None:
    changes = ["objective.loss.reference=reference", "models.reference.source=role:policy"]
    recipe = override(small(rlhf_workflow(), *SHORT, *ONE_UPDATE, "rl.learner.optimizer.lr=1e-2"), changes)
    models, store = train(recipe)
    first, *later = [entry["loss"] for entry in rounds(store)]
    assert first == pytest.approx(AT_THE_REFERENCE, abs=1e-5)
    assert all(abs(loss - AT_THE_REFERENCE) > 1e-3 for loss in later)
    assert models["reference"].version == 0


@pytest.mark.slow
def test_the_reward_rises(small: Small, train: Train) -> None:
    """A model that was taught to like one kind of completion makes the policy write more of it."""
    _, store = train(
        small(rlhf_workflow(), *SHORT, "steps=5", "prompts=16", "rl.learner.optimizer.lr=1e-2", "max_steps=6")
    )
    rewards = [entry["reward"] for entry in rounds(store)]
    assert np.mean(rewards[-2:]) > rewards[0]


def test_it_is_listed_with_its_row() -> None:
    (found,) = [entry for entry in entries("recipe") if entry.name == "rlhf_workflow"]
    assert (found.rows, found.source) == ((250,), "arXiv:2405.07863")
    assert rl_of(rlhf_workflow()).objective == Pairwise(loss=DPO(label_smoothing=0.1, reference="old"))
    assert rl_of(rlhf_workflow()).roles == {"policy", "reward"}


def test_a_recipe_without_a_reward_model_gets_one() -> None:
    mine = override(arithmetic(), ["tasks={kind: worked_solutions, size: 100}"])
    changed = rlhf_workflow(mine)
    assert list(changed.stages) == ["reward_model", "rl"]
    assert rl_of(changed).reward == RewardModel()
    assert changed.evaluation.verifier == rl_of(mine).reward, "held-out answers are judged as before"
    assert with_reward_model(changed) == changed
