"""Klear-Reasoner on a tiny new model: what is learned, and from whom."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.rewards.python_tests import PythonTests
from posttrain.methods.policy_gradient.klear_reasoner import ROWS, klear_reasoner
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 4 - 1) / 2\n"
"""-0.5, 0, 0.5 or the full reward of 1."""


def kept_rows(store: RunStore, step: int) -> list[dict[str, object]]:
    return [row for row in store.rollouts(step) if row["dropped_reason"] is None]


def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(klear_reasoner(), "lr=1e-2"), tmp_path, VARIED))
    assert models["policy"].version == 3 * 8
    for step, entry in enumerate(store.metrics(), start=1):
        right = np.array([row["reward"] == 1.0 for row in kept_rows(store, step)])
        assert entry["likelihood/share"] == pytest.approx(right.mean())
        assert ("likelihood/nats" in entry) == right.any()
    assert max(entry["clip_fraction"] for entry in store.metrics()) > 0
    assert ROWS == (163,)


def test_the_loss_of_a_first_update(small: Small, train: Train, tmp_path: Path) -> None:
    """All ratios are 1: minus the mean advantage, and a tenth of the nats of what got the full reward."""
    once = ("steps=1", "learner.minibatches=1")
    _, store = train(with_reward(small(klear_reasoner(), *once), tmp_path, VARIED))
    terms = []
    for row in kept_rows(store, 1):
        for logp, advantage in zip(row["trained_logp"], row["advantage"], strict=True):  # type: ignore[call-overload]
            if logp is not None:
                terms.append(-advantage - 0.1 * logp * (row["reward"] == 1.0))
    assert store.metrics()[0]["loss"] == pytest.approx(np.mean(terms), abs=1e-5)
    assert any(row["reward"] == 1.0 for row in kept_rows(store, 1))


@pytest.mark.slow
def test_without_its_parts_it_learns_what_ppo_does(small: Small, train: Train, tmp_path: Path) -> None:
    """Many updates, so that tokens are clipped: with weights of 0 the weights come out as PPO's, else not."""
    changes = ("lr=1e-2", "penalties={}", "steps=1")
    objectives = (
        ("objective.beta_low=0", "objective.beta_high=0"),
        ("objective.kind=ppo_clip", "objective.clip_high=0.28"),
        (),
    )
    nothing, ppo, gppo = (
        train(with_reward(small(klear_reasoner(), *changes, *own), tmp_path, VARIED))[0]["policy"].state_dict()
        for own in objectives
    )
    for name, weight in ppo.items():
        assert nothing[name].allclose(weight, atol=1e-5), name
    assert not all(gppo[name].allclose(weight, atol=1e-3) for name, weight in ppo.items())


def test_partly_correct_programs_are_rewarded_and_not_imitated() -> None:
    """As the docstring states it: from -1 to 1 by the share of tests, so that only all of them make 1."""
    programs = override(klear_reasoner(), ["reward={kind: python_tests, partial: true, wrong: -1, missing: -1}"])
    reward = rl_of(programs).reward
    assert isinstance(reward, PythonTests)
    assert (reward.partial, reward.right, reward.wrong, reward.missing) == (True, 1.0, -1.0, -1.0)
    assert rl_of(programs).penalties["likelihood"].at_least == 1.0  # type: ignore[attr-defined]
