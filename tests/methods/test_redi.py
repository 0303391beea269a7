"""REDI on a tiny new model: two stages, no reference, and where it collapses."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.preferences.redi import REDI
from posttrain.methods.sft_rl.redi import ROWS, redi
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("tasks.terms=[2, 2]", "tasks.digits=[1, 1]", "sft.batch=8", "redi.batch=8", "sft.max_steps=3")


def test_it_trains(small: Small, train: Train) -> None:
    models, store = train(small(redi(), *SHORT, "redi.max_steps=3"))
    assert set(models) == {"policy"}, "no other model is loaded or asked"
    assert ROWS == (98,)
    assert [entry["stage"] for entry in store.metrics()] == ["sft"] * 3 + ["redi"] * 3
    for entry in store.metrics()[3:]:
        assert entry["loss"] == pytest.approx(0.8 * entry["rejected_mean_logp"] - entry["chosen_mean_logp"], abs=1e-5)
        assert entry["pair_margin"] == pytest.approx(entry["chosen_mean_logp"] - entry["rejected_mean_logp"], abs=1e-5)
        assert entry["chosen_logp"] < entry["chosen_mean_logp"] < 0.0


def test_both_stages_learn_the_same_correct_solutions() -> None:
    recipe = redi()
    assert recipe.stages["sft"].tasks is None and recipe.stages["redi"].tasks is None
    for task in recipe.tasks.load()[:20]:
        assert task.demonstrations == (task.preferences[0].chosen,)


@pytest.mark.slow
def test_the_symmetric_loss_takes_the_chosen_ones_along_and_imitation_does_not(small: Small, train: Train) -> None:
    """At a high rate; right and wrong solutions share most of their tokens. The rejected ones fall with alpha."""
    change = {}
    for alpha in (0.0, 0.8, 1.0):
        sizes = ("tasks.size=405", "redi.learner.optimizer.lr=5e-3", f"redi.loss.alpha={alpha}", "sft.max_steps=40")
        _, store = train(override(small(redi(), *SHORT), [*sizes, "sft.learner.optimizer.lr=5e-3"]))
        courses = [entry for entry in store.metrics() if entry["stage"] == "redi"]
        for name in ("chosen_mean_logp", "rejected_mean_logp"):
            course = [entry[name] for entry in courses]
            change[alpha, name] = np.mean(course[-5:]) - np.mean(course[:2])
    assert change[0.0, "chosen_mean_logp"] > 0.0
    assert change[1.0, "chosen_mean_logp"] < -1.0
    assert change[1.0, "rejected_mean_logp"] < change[0.0, "rejected_mean_logp"] - 1.0


def test_a_stage_on_pairs_that_is_there_keeps_its_sizes() -> None:
    mine = override(sum_pairs(), ["dpo.batch=7", "lr=1e-6"])
    pairs, before = preference_of(redi(mine)), preference_of(mine)
    assert list(redi(mine).stages) == ["sft", "dpo"]
    assert pairs == replace(before, loss=REDI())
