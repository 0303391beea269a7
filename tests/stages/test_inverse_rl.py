"""Inverse RL: the loss by hand and its gradient, balance and routing by domain, a run that ranks, resuming."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.guarded_requests import HARMS, GuardedRequests
from posttrain.errors import UserError
from posttrain.methods.safety.dr_irl import dr_irl
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import SCORE
from posttrain.stages import Models
from posttrain.stages.inverse_rl import InverseRL
from posttrain.types import Task
from tests.builders import tokens
from tests.stages.resuming import cut_off_and_resumed

Train = Callable[[Recipe], tuple[Models, RunStore]]

STAGE = InverseRL(by_domain={"crime": "a", "lie": "b"}, rollout=Independent(), reducer=Sequences(), beta=2.0)


def test_the_loss_by_hand_and_its_gradient() -> None:
    """Scores 1.5 and -.5 at the last tokens: minus their difference over beta."""
    score_T = torch.tensor([9.0, 1.5, -0.5], dtype=torch.float64, requires_grad=True)
    pair = tokens([[0.0, 0.0], [0.0]], advantage=[[1.0, 1.0], [-1.0]], group_N=[0, 0])
    result = STAGE._difference(replace(pair, signals={SCORE: score_T}))
    assert result.loss_T.tolist() == pytest.approx([-1.0] * 3)
    assert result.metrics["pair_margin"].tolist() == [2.0] and result.metrics["pair_accuracy"].tolist() == [1.0]

    def loss(x: torch.Tensor) -> torch.Tensor:
        return STAGE._difference(replace(pair, signals={SCORE: x})).loss_T

    assert torch.autograd.gradcheck(loss, score_T)


def test_every_domain_has_the_same_number_of_tasks_however_rare() -> None:
    tasks = GuardedRequests(size=300, which="harmful", rare=0.5).load()
    stage = replace(STAGE, by_domain=dict.fromkeys(HARMS, "a"))
    own = stage._by_domain(tasks)
    assert {domain: len(found) for domain, found in own.items()} == Counter(task.domain for task in tasks)
    with pytest.raises(UserError, match=r"by_domain has the domain 'crme'.*did you mean 'crime'"):
        replace(STAGE, by_domain={"crme": "a"})._by_domain(tasks)
    with pytest.raises(UserError, match="no task of it has a demonstration"):
        STAGE._by_domain([Task(key="t", prompt="x", domain="crime")])


def test_its_roles() -> None:
    assert STAGE.roles == {"policy", "a", "b"} and STAGE.total_steps([]) == 20
    assert [need.role for need in STAGE.needed({})] == ["a", "b"]


SHORT = (
    "tasks.size=80",
    "evaluation.tasks.size=8",
    "evaluation.holdout=8",
    "irl.steps=8",
    "irl.batch=2",
    "irl.rollout.sampling.max_tokens=4",
    "irl.learner.optimizer.lr=3e-3",
    "threads=1",
    "evaluation.sampling.max_tokens=4",
)


def only_rewards(folder: Path) -> Recipe:
    recipe = dr_irl()
    recipe = replace(recipe, stages={"irl": recipe.stages["irl"]})
    return override(recipe, [*SHORT, f"models.policy.source={folder}"])


def test_after_it_demonstrations_are_ranked_above_samples(tiny_folder: Path, train: Train) -> None:
    models, store = train(only_rewards(tiny_folder))
    entries: list[dict[str, Any]] = store.metrics()
    assert models["policy"].version == 0 and all(models[f"reward_{domain}"].version == 8 for domain in HARMS)
    assert entries[-1]["pair_margin"] > entries[0]["pair_margin"] and entries[-1]["pair_accuracy"] == 1.0
    assert all(f"reward_{domain}/pair_margin" in entries[-1] for domain in HARMS)
    assert entries[0]["sampled_tokens"] <= 7 * 2 * 4


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not(tiny_folder: Path, train: Train, tmp_path: Path) -> None:
    recipe = override(only_rewards(tiny_folder), ["checkpoints.every_steps=1"])
    whole, record = train(recipe)
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=2)
    assert [json.dumps(e) for e in again.metrics()] == [json.dumps(e) for e in record.metrics()]
    for name, tensor in whole["reward_crime"].state_dict().items():
        assert torch.equal(tensor, resumed["reward_crime"].state_dict()[name]), name


def test_a_task_trains_only_the_model_of_its_domain(tiny_folder: Path, train: Train) -> None:
    """With the same data, one more domain leaves the model of the other as it is."""
    recipe = only_rewards(tiny_folder)
    one = replace(recipe.stages["irl"], by_domain={"crime": "reward_crime"})  # type: ignore[type-var]
    two = replace(recipe.stages["irl"], by_domain={"crime": "reward_crime", "lie": "reward_lie"})  # type: ignore[type-var]
    first, _ = train(replace(recipe, stages={"irl": one}))
    second, _ = train(replace(recipe, stages={"irl": two}))
    same = zip(first["reward_crime"].parameters(), second["reward_crime"].parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert second["reward_lie"].version == 8
