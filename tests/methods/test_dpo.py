"""DPO on a tiny new model."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.tasks.files import Files
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.methods.preference.dpo import dpo
from posttrain.methods.preference.rpo import rpo
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.recipes.catalogue import entries
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.quickstart import quickstart
from posttrain.signals import LOGP
from posttrain.stages import Models
from posttrain.stages.pairs import pair_examples
from posttrain.training.learner import evaluate_examples
from posttrain.types import Task

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def write_digits(path: Path, count: int, seed: int) -> list[Task]:
    """Pairs of digits after a few letters: the even one is preferred."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "prompt": "".join(rng.choice(list("abcdefgh"), 5)) + f" {seed}:",
            "chosen": str(2 * rng.integers(5)),
            "rejected": str(2 * rng.integers(5) + 1),
        }
        for _ in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(Files(path=str(path)).load())


def margins(policy: Policy, reference: Policy, tasks: list[Task]) -> np.ndarray:
    """How much more the policy has moved towards the chosen completion than towards the rejected one, in nats."""
    examples = [e for i, task in enumerate(tasks) for e in pair_examples(policy, task, task.preferences[0], i)]
    ours, theirs = (
        [float(signals[LOGP].sum()) for signals in evaluate_examples(p, examples, frozenset({LOGP}), max_tokens=4096)]
        for p in (policy, reference)
    )
    gain = np.array(ours) - np.array(theirs)
    return gain[::2] - gain[1::2]


@pytest.mark.slow
def test_unseen_pairs_are_ordered(small: Small, train: Train, tmp_path: Path) -> None:
    write_digits(tmp_path / "pairs.jsonl", 400, seed=0)
    unseen = write_digits(tmp_path / "unseen.jsonl", 200, seed=1)
    changes = [f"tasks={tmp_path / 'pairs.jsonl'}", "evaluation.holdout=5", "batch=16", "lr=3e-3", "threads=1"]
    recipe = small(dpo(), "evaluation.verifier.kind=format", "evaluation.sampling.max_tokens=2", *changes)
    models, store = train(recipe)
    start = load_policy("policy", recipe.models["policy"], {}, torch.device("cpu"))
    found = margins(models["policy"], start, unseen)
    assert (found > 0).mean() > 0.95
    courses = [entry["pair_margin"] for entry in store.metrics()]
    assert np.mean(courses[-3:]) > np.mean(courses[:3]) + 0.1


def test_it_starts_without_a_preference(small: Small, train: Train) -> None:
    _, store = train(small(dpo(), "tasks.terms=[2, 2]", "max_steps=2"))
    first, second = store.metrics()
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert first["pair_accuracy"] == 0.0
    assert second["pair_accuracy"] > 0.0


def test_it_is_listed_with_its_row() -> None:
    (found,) = [entry for entry in entries("recipe") if entry.name == "dpo"]
    assert found.rows == (197,)
    assert found.source == "arXiv:2305.18290"
    assert dpo().tasks == WorkedSolutions(size=2000)


def test_a_recipe_without_pairs_gets_a_stage_for_them_before_its_reinforcement() -> None:
    assert list(dpo(quickstart()).stages) == ["sft", "dpo", "rl"]
    assert list(dpo(demonstrations()).stages) == ["sft", "dpo"]
    assert dpo(rpo()).stages == dpo().stages
