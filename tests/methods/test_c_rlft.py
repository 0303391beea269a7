"""C-RLFT: weights and conditions of sources, and how held-out tasks are asked."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from posttrain.errors import UserError
from posttrain.methods.sft_rl.c_rlft import ROWS, c_rlft
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.problems import Problems
from posttrain.runs.store import RunStore
from posttrain.settings.mixed_quality import mixed_quality
from posttrain.signals import LOGP
from posttrain.stages import Models
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.learner import evaluate_examples

Train = Callable[[Recipe], tuple[Models, RunStore]]


def tiny(recipe: Recipe, folder: object, *changes: str) -> Recipe:
    sizes = ("threads=1", "evaluation.holdout=5", "sft.max_steps=3", "sft.batch=6", "lr=1e-2")
    return override(recipe, [f"model={folder}", *sizes, *changes])


def test_held_out_tasks_are_asked_as_the_expert() -> None:
    assert ROWS == (60,)
    problems = Problems(override(c_rlft(), ["evaluation.holdout=40"]))
    assert len(problems.held_out) == 40
    assert all(str(task.prompt).startswith("Good Q:") and "\nGood A:" in str(task.prompt) for task in problems.held_out)
    assert {task.key.split("/")[0] for task in problems.held_out} == {"expert", "other"}
    trained = problems.of(problems.recipe.stages["sft"])
    assert {(task.domain, str(task.prompt).split()[0]) for task in trained} == {("expert", "Good"), ("other", "Poor")}
    assert all(task.asked is None for task in trained)
    asked = {str(task.fields["expression"]) for task in problems.held_out}
    assert not asked & {str(task.fields["expression"]) for task in trained}, "not under another condition either"


def test_the_loss_is_weighted_over_the_whole_batch(tiny_folder, train: Train) -> None:  # type: ignore[no-untyped-def]
    _, store = train(tiny(c_rlft(), tiny_folder))
    for step, entry in enumerate(store.metrics(), start=1):
        above = below = 0.0
        for row in store.rollouts(step):
            weight = 1.0 if row["task_key"].startswith("expert/") else 0.1
            logp = np.array([x for x in row["trained_logp"] if x is not None])
            above, below = above - weight * logp.sum(), below + weight * len(logp)
        assert entry["loss"] == pytest.approx(above / below, rel=1e-4)


def test_equal_weights_are_sft_on_the_same_prompts(tiny_folder, train: Train) -> None:  # type: ignore[no-untyped-def]
    equal = tiny(c_rlft(), tiny_folder, "sft.weights.by_domain={expert: 3, other: 3}")
    plain = tiny(c_rlft(), tiny_folder, "sft.weights=null", "sft.objective=likelihood")
    (ours, _), (theirs, _) = train(equal), train(plain)
    for a, b in zip(ours["policy"].parameters(), theirs["policy"].parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_an_objective_without_use_for_weights_is_refused() -> None:
    with pytest.raises(UserError, match="'likelihood' has no use for weights"):
        override(c_rlft(), ["sft.objective=likelihood"])


def test_a_source_without_a_weight_is_refused_before_training(tiny_folder, train: Train) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match="domain 'other', which has no weight"):
        train(tiny(c_rlft(), tiny_folder, "sft.weights.by_domain={expert: 1}"))


@pytest.mark.slow
def test_the_condition_separates_conflicting_labels(tiny_folder, train: Train) -> None:  # type: ignore[no-untyped-def]
    """Each class writes its own result under its own word: the catalogue's behaviour, on one sum with two answers."""
    changes = ("sft.max_steps=120", "sft.epochs=200", "sft.batch=8", "evaluation.by=none")
    task = "{kind: arithmetic, size: 4, terms: [2, 2], digits: [1, 1]}"
    sources = f"{{expert: {task}, other: {{kind: slipped_sums, tasks: {task}}}}}"
    models, _ = train(tiny(c_rlft(), tiny_folder, *changes, f"tasks.tasks.sources={sources}"))
    recipe = override(c_rlft(), [f"tasks.tasks.sources={sources}"])
    tasks = recipe.tasks.load()
    pairs = [(asked, shown) for asked in tasks for shown in tasks if asked.fields == shown.fields]
    examples = [example_from(demonstration(models["policy"], asked, shown.demonstrations[0])) for asked, shown in pairs]
    found = evaluate_examples(models["policy"], examples, frozenset({LOGP}), max_tokens=10**4)
    logp = {(asked.key, shown.domain): own[LOGP].sum() for (asked, shown), own in zip(pairs, found, strict=True)}
    for task in tasks:
        conflicting = {"expert": "other", "other": "expert"}[task.domain]
        assert logp[task.key, task.domain] > logp[task.key, conflicting] + 1.0


def test_it_is_sft_with_weights_and_conditions() -> None:
    assert c_rlft().tasks.tasks == sft(mixed_quality()).tasks  # type: ignore[attr-defined]
