"""Several heads: their losses by hand, missing labels, targets from another model, and what is refused."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.annotators.missing import Missing
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.tasks.graded_replies import GradedReplies
from posttrain.errors import UserError
from posttrain.methods.reward_models.edu_align import edu_align
from posttrain.methods.reward_models.robust_rlhf import robust_rlhf
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import SCORES
from posttrain.stages import Models
from posttrain.stages.heads import HeadsTraining, texts_of
from posttrain.types import Preference, Rated, Task, Tokens
from tests.builders import tokens

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]
TWO = HeadsTraining(reducer=Sequences(), labels=("a", "b"))
ALL = np.ones((2, 2), np.float32)


def scored(score_TO: torch.Tensor) -> Tokens:
    """Two texts, each a group of its own, of which the last token is trained."""
    return replace(tokens([[0.0]] * 2, group_N=[0, 1]), signals={SCORES: score_TO})


def loss_of(stage: HeadsTraining, score_TO: torch.Tensor, target: Any, weight: np.ndarray = ALL) -> torch.Tensor:
    """The loss of a step of two texts, as the reducer `sequences` takes it."""
    return stage._loss(scored(score_TO), np.array(target, np.float32), weight).loss_T.mean()


def leaf(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


def test_squared_errors_are_over_the_labels_that_are_there() -> None:
    """Errors 1, 2, 0, -3: all four are (1 + 4 + 0 + 9) / 4; without the last, 5 / 3, and it has no gradient."""
    score_TO = leaf([1.0, 2.0], [0.5, -1.0])
    assert loss_of(TWO, score_TO, [[0, 0], [0.5, 2]]).item() == pytest.approx(14 / 4)
    loss = loss_of(TWO, score_TO, [[0, 0], [0.5, 0]], np.array([[1, 1], [1, 0]], np.float32))
    assert loss.item() == pytest.approx(5 / 3)
    loss.backward()
    assert score_TO.grad is not None
    assert score_TO.grad.tolist() == [[pytest.approx(2 / 3), pytest.approx(4 / 3)], [0.0, 0.0]]


def test_a_step_without_any_label_has_the_loss_zero() -> None:
    score_TO = leaf([1.0, 2.0], [0.5, -1.0])
    loss = loss_of(TWO, score_TO, [[0, 0], [0, 0]], np.zeros((2, 2), np.float32))
    loss.backward()
    assert loss.item() == 0.0 and score_TO.grad is not None and not score_TO.grad.any()


def test_a_gaussian_by_hand_and_where_its_standard_deviation_ends() -> None:
    """One head: error 1 at a log std of 0 and no floor to speak of is 1/2; at log 2 it is 1/8 + log 2."""
    stage = HeadsTraining(reducer=Sequences(), labels=("a",), loss="gaussian", floor=1e-6)
    found = stage.of_heads(torch.tensor([[1.0, 0.0], [1.0, math.log(2)]]), torch.zeros(2, 1))
    assert found[:, 0].tolist() == pytest.approx([0.5, 0.125 + math.log(2)])
    held = HeadsTraining(reducer=Sequences(), labels=("a",), loss="gaussian", floor=0.5)
    assert held.of_heads(torch.tensor([[0.0, -50.0]]), torch.zeros(1, 1)).item() == pytest.approx(math.log(0.5))


def test_squared_errors_of_draws_would_teach_a_std_of_zero() -> None:
    """E (m + s e - t)^2 = (m - t)^2 + s^2 grows with s; the likelihood is best at s = |m - t|."""
    stage = HeadsTraining(reducer=Sequences(), labels=("a",), loss="gaussian", floor=1e-6)
    stds = torch.linspace(0.2, 3.0, 281)
    losses = stage.of_heads(torch.stack([torch.full_like(stds, 1.5), stds.log()], 1), torch.zeros(281, 1))
    assert stds[losses[:, 0].argmin()].item() == pytest.approx(1.5, abs=0.01)


def test_levels_are_the_cross_entropy_of_each_head() -> None:
    """Two heads of two levels: logits (0, log 3) give 1/4 and 3/4."""
    stage = HeadsTraining(reducer=Sequences(), labels=("a", "b"), loss="levels", levels=2)
    score_TO = torch.tensor([[0.0, math.log(3), 0.0, 0.0]])
    found = stage.of_heads(score_TO, torch.tensor([[1.0, 0.0]]))
    assert found[0].tolist() == pytest.approx([math.log(4 / 3), math.log(2)])


@pytest.mark.parametrize(("kind", "each"), [("squared", 1), ("gaussian", 2), ("levels", 3)])
def test_gradients_by_finite_differences(kind: Any, each: int) -> None:
    stage = HeadsTraining(reducer=Sequences(), labels=("a", "b"), loss=kind)
    score_TO = torch.linspace(-1, 1, 4 * each, dtype=torch.float64).reshape(2, -1).requires_grad_()
    weight = np.array([[1, 0], [2, 1]], np.float32)
    assert torch.autograd.gradcheck(lambda x: loss_of(stage, x, [[1, 0], [2, 1]], weight), score_TO)


def test_texts_of_a_task_come_once() -> None:
    pair = Preference(chosen="a", rejected="b")
    task = Task(
        key="k", prompt="p", preferences=(pair,), demonstrations=("a", "c"), rated=(Rated(completion="d", rating=1),)
    )
    assert texts_of(task) == ["a", "b", "c", "d"]


def test_what_cannot_be_learned_is_reported() -> None:
    with pytest.raises(ValidationError, match="give one"):
        HeadsTraining(reducer=Sequences(), labels=())
    with pytest.raises(ValidationError, match="have no levels"):
        HeadsTraining(reducer=Sequences(), labels=(), target_role="reward", loss="levels")
    with pytest.raises(ValidationError, match="name each column once"):
        HeadsTraining(reducer=Sequences(), labels=("a", "a"))
    with pytest.raises(UserError, match=r"models\.reward\.outputs is 3, and loss=squared of 2 labels takes 2"):
        TWO._heads(3)
    task = Task(key="k", prompt="p", demonstrations=("x",), fields={"a": 1.5})
    with pytest.raises(UserError, match=r"a is 1\.5, and levels are whole numbers from 0 to 2"):
        HeadsTraining(reducer=Sequences(), labels=("a",), loss="levels")._texts([task])
    with pytest.raises(UserError, match="a is 'good'; a label is a number"):
        TWO._texts([replace(task, fields={"a": "good"})])
    with pytest.raises(UserError, match="a completion and a number in a or b"):
        TWO._texts([replace(task, fields={"c": 1})])
    with pytest.raises(UserError, match="none of the 1 tasks has a number in 'b', so that its head"):
        TWO._texts([task])


def test_labels_are_those_of_the_text_and_some_are_missing() -> None:
    tasks = GradedReplies(size=400, annotators=(Missing(rate=0.3),)).load()
    for task in tasks[:50]:
        words = task.demonstrations[0].strip(" .").split()
        hints, whys = words.count("hint"), words.count("why")
        names = len(words) - hints - whys
        own = {"helpfulness": hints, "creativity": whys, "personalization": names}
        right = {name: {0: 0, 1: 2, 2: 1}[n] for name, n in own.items()}
        assert all(task.fields.get(name, label) == label for name, label in right.items())
    there = sum("helpfulness" in task.fields for task in tasks)
    assert there / 400 == pytest.approx(0.7, abs=0.1)


def test_edu_align_learns_labels_and_rewards_by_their_mean(small: Small, train: Train) -> None:
    recipe = small(edu_align(), "heads.max_steps=4", "heads.batch=8", "sft.max_steps=1", "sft.batch=4")
    models, store = train(recipe)
    first = [entry for entry in store.metrics() if entry["stage"] == "heads"]
    assert len(first) == 4 and "loss/creativity" in first[0]
    last = [entry for entry in store.metrics() if entry["stage"] == "rl"][-1]
    parts = [last[f"reward/{name}"] for name in ("helpfulness", "personalization", "creativity")]
    assert last["reward"] == pytest.approx(sum(parts) / 3, abs=1e-4)
    assert models["reward"].get_parameter("value_head.weight").shape[0] == 3


def test_an_ensemble_learns_standardized_scores_of_the_first_model(small: Small, train: Train, tmp_path: Path) -> None:
    sizes = ["reward_model.max_steps=2", "reward_model.batch=4", "ensemble.max_steps=3", "ensemble.batch=8"]
    folder = new_folder(tmp_path / "model", layers=1, width=32, heads=2, kv_heads=1, context=200)
    recipe = override(small(robust_rlhf()), [*sizes, "rl.steps=1", "rl.audit.most_fooled=1", f"model={folder}"])
    models, store = train(recipe)
    head = models["ensemble"].get_parameter("value_head.bias")
    assert head.shape == (10,) and len({round(x, 6) for x in head[:5].tolist()}) == 5, "heads see other weights"
    [last] = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    mixed = 0.4 * last["reward/nominal"] + 0.6 * last["reward/worst"]
    assert last["reward"] == pytest.approx(mixed, abs=1e-4)
    assert last["reward/worst"] == pytest.approx(min(last[f"reward/head_{k}"] for k in range(5)), abs=10)
