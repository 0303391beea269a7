"""KTO: the loss by hand, the baseline from mismatched pairs, and data with and without pairs."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.reducers.sequences import Sequences
from posttrain.errors import UserError
from posttrain.methods.preference.kto import kto
from posttrain.methods.preference.orpo import orpo
from posttrain.methods.preference.simpo import simpo
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import LOGP
from posttrain.stages import Models
from posttrain.stages.kto import KTO, Rating
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.learner import evaluate_examples
from posttrain.types import Preference, Rated, Task

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("tasks.terms=[2, 2]", "tasks.digits=[1, 1]", "max_steps=3", "lr=1e-2")


def stage(**changes: object) -> KTO:
    (found,) = kto().stages.values()
    assert isinstance(found, KTO)
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.fixture
def policy(tiny_folder: Path) -> Policy:
    return load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu"))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_loss_by_hand() -> None:
    """Gains of 3, 1 and -2 nats against a baseline of 1: good, bad, bad."""
    gain_N = torch.tensor([3.0, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    good_N = torch.tensor([True, False, False])
    member = stage(beta=0.5, desirable_weight=1.5, undesirable_weight=0.8)
    found = member.losses(gain_N, good_N, 1.0)
    assert found.tolist() == pytest.approx([1.5 * (1 - sigmoid(1.0)), 0.8 * 0.5, 0.8 * (1 - sigmoid(1.5))])
    assert torch.autograd.gradcheck(lambda x: member.losses(x, good_N, 1.0), gain_N)
    (slope,) = torch.autograd.grad(found.sum(), gain_N)
    assert slope[0] < 0 < slope[1] and slope[2] > 0, "good completions are raised, bad ones lowered"
    assert slope[2] < slope[1], "a bad completion that is far below the baseline counts less"


def test_the_baseline_is_the_mean_gain_of_mismatched_pairs(policy: Policy, tiny_folder: Path) -> None:
    """Each prompt with the completion of the next one; never below 0."""
    other = load_policy("reference", Model(source=str(tiny_folder)), {}, torch.device("cpu"))
    with torch.no_grad():
        for number, parameter in enumerate(other.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) * 0.05)
    tasks = [Task(key=name, prompt=f"{name}=") for name in "abc"]
    ratings = [Rating(task=t, text=x, good=True) for t, x in zip(tasks, ("1", "22", "333"), strict=True)]

    def total(model: Policy, task: Task, text: str) -> float:
        examples = [example_from(demonstration(model, task, text))]
        return float(evaluate_examples(model, examples, frozenset({LOGP}), max_tokens=1000)[0][LOGP].sum())

    shifted = list(zip(tasks, ("22", "333", "1"), strict=True))
    gains = [total(policy, t, x) - total(other, t, x) for t, x in shifted]
    mean = float(np.mean(gains))
    assert abs(mean) > 1e-3
    models = {"policy": policy, "reference": other}
    turned = {"policy": other, "reference": policy}
    assert stage().divergence(models, ratings) == pytest.approx(max(0.0, mean), abs=1e-5)
    assert stage().divergence(turned, ratings) == pytest.approx(max(0.0, -mean), abs=1e-5)


def test_mismatched_pairs_beyond_the_context_are_left_out(policy: Policy) -> None:
    long = Rating(task=Task(key="l", prompt="x" * 50), text="y", good=True)
    wide = Rating(task=Task(key="w", prompt="x"), text="y" * 40, good=True)
    assert stage().divergence({"policy": policy, "reference": policy}, [long, wide]) == 0.0


def test_labels_and_pairs_are_both_read() -> None:
    pair = Task(key="p", prompt="a", preferences=(Preference(chosen="w", rejected="l"),))
    rated = Task(key="r", prompt="b", rated=(Rated(completion="u", rating=1.0), Rated(completion="d", rating=0.0)))
    assert [(r.text, r.good) for r in stage().ratings([pair, rated])] == [
        ("w", True), ("l", False), ("u", True), ("d", False)
    ]  # fmt: skip
    scaled = replace(rated, rated=(Rated(completion="u", rating=2.0),))
    assert [r.good for r in stage(good_from=3).ratings([scaled])] == [False]
    with pytest.raises(UserError, match="none of the 1 tasks has a completion that is good or bad"):
        stage().ratings([Task(key="k", prompt="a")])
    with pytest.raises(ValidationError):
        stage(batch=1)


def test_it_starts_at_one_half_and_learns(small: Small, train: Train) -> None:
    """Where the policy is the reference, every gain and the baseline are 0."""
    models, store = train(small(kto(), *SHORT, "batch=8", "beta=1"))
    metrics = store.metrics()
    assert metrics[0]["loss"] == pytest.approx(0.5, abs=1e-5) and metrics[0]["baseline"] == pytest.approx(0, abs=1e-4)
    assert metrics[-1]["desirable_reward"] > metrics[-1]["undesirable_reward"]
    assert models["policy"].version == 3
    assert {json.loads(row["info"])["desirable"] for row in store.rollouts(1)} == {True, False}


def test_unpaired_rows_of_ones_own_work(small: Small, train: Train, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"{i}: ", "completion": "yes" if i % 3 else "no", "label": bool(i % 3)} for i in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = override(small(kto(), "batch=4", "max_steps=2"), [f"tasks={file}", "evaluation.holdout=6"])
    _, store = train(recipe)
    assert [entry["tasks"] for entry in store.evaluations()] == [0, 0], "no answer can be scored, and none is sampled"
    assert store.evaluations()[0]["held_out_loss"] > 0


@pytest.mark.parametrize("method", [simpo, orpo])
def test_methods_without_a_reference_have_none(method: Callable[..., Recipe], small: Small, train: Train) -> None:
    recipe = method()
    assert recipe.models.keys() == {"policy"}
    assert all(isinstance(getattr(s, "reducer", None), Sequences) for s in recipe.stages.values())
    models, store = train(small(recipe, *SHORT, "batch=8", "tasks.rejected=unworked", "max_steps=6"))
    assert models["policy"].version == 6 and models.keys() == {"policy"}
    assert store.metrics()[-1]["loss"] < store.metrics()[0]["loss"]
