"""AMFT: the share of imitation falls where demonstrations are spoilt."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.sft_rl.amft import ROWS, amft
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
SHORT = ("tasks.terms=[2, 2]", "lr=3e-3", "balance.warmup=1", "balance.entropy_rate=0", "balance.rate=0.05")


def shares(store: RunStore) -> list[float]:
    return [entry["share/demonstrated"] for entry in store.metrics()]


@pytest.mark.slow
def test_mu_rises_with_good_demonstrations_and_falls_with_spoilt_ones(
    small: Small, train: Train, tmp_path: Path
) -> None:
    good, spoilt = tmp_path / "good.jsonl", tmp_path / "spoilt.jsonl"
    for path, answer in ((good, "aaaa"), (spoilt, "zzzz")):
        path.write_text("".join(json.dumps({"prompt": f"P{n}:", "completion": answer}) + "\n" for n in range(24)))
    ends = []
    for experts in (good, spoilt):
        changes = (f"experts={experts}", "experts.batch=8", f"balance.tasks={good}", "steps=14")
        _, store = train(with_reward(small(amft(arithmetic()), *SHORT, *changes), tmp_path, VARIED))
        assert shares(store)[0] == 1.0
        slopes = [entry["validation_slope"] for entry in store.metrics() if "validation_slope" in entry]
        assert len(slopes) == 13, "in every step that learns from both"
        ends.append((shares(store)[-1], np.mean(slopes)))
    assert ends[0][0] > 0.5 > ends[1][0]
    assert ends[0][1] > 0 > ends[1][1]


@pytest.mark.slow
def test_the_controller_resumes(small: Small, train: Train, tmp_path: Path) -> None:
    changes = ("experts.batch=4", "steps=9", "checkpoints.every_steps=4")
    recipe = with_reward(small(amft(arithmetic()), *SHORT, *changes), tmp_path, VARIED)
    _, whole = train(recipe)
    _, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=8)
    assert resumed.metrics() == whole.metrics()
    assert len(set(shares(whole))) > 2
    assert ROWS == (211,)
