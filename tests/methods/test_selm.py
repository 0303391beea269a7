"""SELM on a tiny new model: who is ranked, what is pushed away, and the reference of each round."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.penalties.optimism import Optimism
from posttrain.components.preferences.dpo import DPO
from posttrain.methods.preference.selm import selm
from posttrain.recipes.catalogue import entries
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = (
    "rl.steps=3",
    "prompts=4",
    "max_steps=2",
    "tasks.terms=[2, 2]",
    "tasks.digits=[1, 1]",
    "reward_model.batch=8",
    "rl.audit.most_fooled=1",
)
ONE_UPDATE = ("rl.learner.minibatches=1", "rl.learner.optimizer.lr=1e-2")


@pytest.fixture
def tiny(tiny_folder: Path) -> Callable[..., Recipe]:
    def make(*changes: str) -> Recipe:
        sizes = ("tasks.size=60", "evaluation.holdout=5", "rollout.sampling.max_tokens=8", "threads=1")
        return override(selm(), [f"model={tiny_folder}", *sizes, *SHORT, *changes])

    return make


def rounds(store: RunStore) -> list[dict[str, Any]]:
    return [entry for entry in store.metrics() if entry["stage"] == "rl"]


def test_it_trains(tiny: Callable[..., Recipe], train: Train) -> None:
    """Each group is a greedy response and the data's pair, all scored; the round's updates see whole groups."""
    models, store = train(tiny("rl.learner.minibatches=2"))
    assert models["policy"].version == 3 * 2
    for step in (3, 4, 5):
        rows = store.rollouts(step)
        assert len(rows) == 4 * 3
        by_task: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_task.setdefault(row["task_key"], []).append(row)
        for greedy, chosen, rejected in by_task.values():
            assert [row["sample"] for row in (greedy, chosen, rejected)] == [0, 1, 2]
            assert "####" in chosen["completion"] and "####" in rejected["completion"]
            assert len(chosen["completion"]) > len(rejected["completion"])
            assert all(math.isfinite(row["reward"]) for row in (greedy, chosen, rejected))


@pytest.mark.slow
def test_the_response_is_the_likeliest_token_by_token(tiny: Callable[..., Recipe], train: Train) -> None:
    """As it is by sampling at nearly no temperature, and as it is not at 1."""
    written = []
    for temperature in ("0", "1e-6", "1"):
        _, store = train(tiny("rl.steps=1", f"rollout.sampling.temperature={temperature}"))
        written.append([row["completion"] for row in store.rollouts(3) if row["sample"] == 0])
    assert written[0] == written[1] != written[2]


@pytest.mark.slow
def test_the_reference_is_the_policy_as_each_round_began(tiny: Callable[..., Recipe], train: Train) -> None:
    """Then nothing has moved at a round's first update: log 2, a log-ratio of 0. Later updates have left it."""
    _, store = train(tiny(*ONE_UPDATE))
    assert [entry["loss"] for entry in rounds(store)] == pytest.approx([math.log(2)] * 3, abs=1e-5)
    assert [entry["optimism/log_ratio"] for entry in rounds(store)] == pytest.approx([0.0] * 3, abs=1e-5)
    assert [{row["version"] for row in store.rollouts(s) if row["sample"] == 0} for s in (3, 4, 5)] == [{0}, {1}, {2}]
    _, store = train(tiny("rl.learner.minibatches=4", "rl.learner.optimizer.lr=1e-2"))
    assert all(abs(entry["optimism/log_ratio"]) > 1e-3 for entry in rounds(store))


@pytest.mark.slow
def test_without_weight_it_is_dpo_in_rounds_to_the_bit(tiny: Callable[..., Recipe], train: Train) -> None:
    runs = [
        train(tiny("rl.learner.minibatches=2", more)) for more in ("penalties.optimism.coefficient=0", "penalties={}")
    ]
    (ours, first), (theirs, second) = runs
    for (name, a), b in zip(ours["policy"].state_dict().items(), theirs["policy"].state_dict().values(), strict=True):
        assert a.equal(b), name
    seen = [{k: x for k, x in entry.items() if k != "optimism/log_ratio"} for entry in first.metrics()]
    assert seen == second.metrics()


@pytest.mark.slow
def test_optimism_lowers_what_is_written(tiny: Callable[..., Recipe], train: Train) -> None:
    """With alpha beta far above the paper's the responses of a round get less likely in it than without."""
    moved = [
        np.mean([entry["optimism/log_ratio"] for entry in rounds(train(recipe)[1])])
        for recipe in (
            tiny("rl.learner.minibatches=4", "rl.learner.optimizer.lr=1e-2", f"penalties.optimism.coefficient={c}")
            for c in (0, 1)
        )
    ]
    assert moved[1] < moved[0] - 0.1


def test_it_is_listed_with_its_row() -> None:
    (found,) = [entry for entry in entries("recipe") if entry.name == "selm"]
    assert (found.rows, found.source) == ((203,), "arXiv:2405.19332")
    assert rl_of(selm()).objective == Pairwise(loss=DPO(beta=0.01, reference="old"), pairs="extremes")
    assert rl_of(selm()).penalties == {"optimism": Optimism(coefficient=1e-5, role="old")}
    assert rl_of(selm()).roles == {"policy", "reward"}
