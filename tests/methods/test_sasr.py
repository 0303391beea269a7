"""SASR: a step is one of the two, and one of imitation samples nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.sft_rl.sasr import ROWS, sasr
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
SHORT = ("tasks.terms=[2, 2]", "lr=1e-3", "steps=8", "experts.batch=4", "balance.warmup=2", "balance.gamma=0.5")


@pytest.mark.slow
def test_imitation_or_reinforcement(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(sasr(arithmetic()), *SHORT), tmp_path, VARIED))
    imitated = [entry["share/demonstrated"] == 1.0 for entry in store.metrics()]
    assert imitated[:2] == [True, True] and any(imitated[2:]) and not all(imitated)
    for step, (entry, imitates) in enumerate(zip(store.metrics(), imitated, strict=True), start=1):
        rows = store.rollouts(step)
        assert (entry["sampled_tokens"] == 0) == imitates
        assert all((row["sampled_logp"] is None) == imitates for row in rows)
        if imitates:
            sums = [-sum(x for x in row["trained_logp"] if x is not None) for row in rows]
            assert entry["loss"] == pytest.approx(np.mean(sums), rel=1e-5), "the sum over the tokens of each"


@pytest.mark.slow
def test_the_coin_resumes(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(sasr(arithmetic()), *SHORT, "checkpoints.every_steps=3", "balance.refresh=1")
    recipe = with_reward(recipe, tmp_path, VARIED)
    _, whole = train(recipe)
    _, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=5)
    assert resumed.metrics() == whole.metrics()
    assert ROWS == (75,)
