"""RL-PLUS: the demonstration is a member of the group, and its tokens have a ratio of their own."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.sft_rl.rl_plus import ROWS, rl_plus
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

GIVEN = "def score(completion):\n    return float('####' in completion)\n"
EQUAL = "def score(completion):\n    return 1.0\n"
SHORT = ("tasks.terms=[2, 2]", "penalties={}", "lr=1e-2")


@pytest.mark.slow
def test_where_only_the_demonstration_is_correct(small: Small, train: Train, tmp_path: Path) -> None:
    """Four rollouts fail: the demonstration has the advantage 4/5, they have -1/5; and the loss by hand."""
    _, store = train(with_reward(small(rl_plus(arithmetic()), *SHORT), tmp_path, GIVEN))
    for step, entry in enumerate(store.metrics(), start=1):
        rows = [row for row in store.rollouts(step) if row["dropped_reason"] is None]
        assert len(rows) == 15
        loss = 0.0
        for row in rows:
            given = row["sampled_logp"] is None
            places = [i for i, is_trained in enumerate(row["trained"]) if is_trained]
            advantage = [row["advantage"][i] for i in places]
            assert advantage == pytest.approx([0.8 if given else -0.2] * len(places))
            p = np.exp([row["trained_logp"][i] for i in places])
            loss -= np.sum(4 * p / (3 * p + 1) * 0.8 * np.sqrt(1 - p)) if given else 0.0
            # The value of the loss of own tokens is -A log p, and its gradient that of the ratio.
            loss -= 0.0 if given else np.sum(-0.2 * np.log(p))
        assert entry["loss"] == pytest.approx(loss / 64, rel=1e-4), "the sum over a constant, the most tokens"


def test_where_all_are_correct_nothing_is_learned(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(rl_plus(arithmetic()), *SHORT), tmp_path, EQUAL))
    assert all(entry["loss"] == 0.0 for entry in store.metrics())
    assert ROWS == (278,)
