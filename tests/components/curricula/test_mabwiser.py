"""Bounds and shares of the bandits, beside those of MABWiser (Apache-2.0), which is no dependency of any extra."""

from typing import Any

import numpy as np
import pytest

from posttrain.components.curricula import State
from posttrain.components.curricula._arms import softmax
from posttrain.components.curricula.ucb import Ucb

NAMES = ("a", "b", "c")
COUNTS = {"a": 3, "b": 17, "c": 60}


def history(seed: int) -> dict[str, list[float]]:
    """Absolute advantages of each category, one per prompt."""
    rng = np.random.default_rng(seed)
    return {name: rng.random(COUNTS[name]).tolist() for name in NAMES}


def ucb1(own: list[float], others: int) -> float:
    """MABWiser's UCB1 of an arm with these rewards, where other arms have `others`."""
    mab: Any = pytest.importorskip("mabwiser.mab")
    bandit = mab.MAB(arms=["own", "others"], learning_policy=mab.LearningPolicy.UCB1(alpha=1.0))
    bandit.fit(decisions=["own"] * len(own) + ["others"] * others, rewards=[*own, *[0.0] * others])
    return float(bandit.predict_expectations()["own"])


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_ucb1_with_one_more_reward(seed: int) -> None:
    """n + 1 and N + 1 in the bound are those of an arm that had its mean once more."""
    known = history(seed)
    total = sum(COUNTS.values())
    state: State = {"window": known, "n": COUNTS, "position": {}}
    bounds = Ucb().bounds(state, NAMES)
    for name, bound in zip(NAMES, bounds, strict=True):
        own = known[name]
        oracle = ucb1([*own, float(np.mean(own))], total - len(own))
        assert bound == pytest.approx(oracle, rel=1e-12)


@pytest.mark.parametrize("tau", [0.1, 0.4, 1.0])
def test_shares_are_its_softmax(tau: float) -> None:
    mab: Any = pytest.importorskip("mabwiser.mab")
    known = history(7)
    decisions = [name for name in NAMES for _ in known[name]]
    rewards = [reward for name in NAMES for reward in known[name]]
    bandit = mab.MAB(arms=list(NAMES), learning_policy=mab.LearningPolicy.Softmax(tau=tau))
    bandit.fit(decisions=decisions, rewards=rewards)
    expected = bandit._imp.arm_to_expectation  # what `predict_expectations` returns is a draw around it
    own = softmax(np.array([np.mean(known[name]) for name in NAMES]), tau)
    assert own == pytest.approx([expected[name] for name in NAMES], rel=1e-9)
