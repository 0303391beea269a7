from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sampling.treepo import ROWS, treepo
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"


def test_it_is_grpo_with_a_tree() -> None:
    assert ROWS == (125,)
    assert {d.path for d in differences(grpo(), treepo())} == {
        "rollout",
        "advantage",
        "objective.clip_high",
        "objective.dual_clip",
        "refill",
        "reward",
        "filters.zero_variance.by",
        "evaluation.verifier",
    }


def test_it_trains_on_every_leaf_and_samples_common_segments_once(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(treepo(small()), ["rollout.n=6", "rollout.segment=2", "filters.zero_variance.by=reward"])
    models, store = train(with_reward(recipe, tmp_path, VARIED))
    assert models["policy"].version == 3
    for step, entry in enumerate(store.metrics(), start=1):
        rows = store.rollouts(step)
        assert len(rows) == 3 * 6
        lengths = [sum(row["trained"]) for row in rows]
        assert entry["sampled_tokens"] < sum(lengths)
        assert entry["trained_tokens"] == sum(
            n for n, row in zip(lengths, rows, strict=True) if not row["dropped_reason"]
        )
        assert entry["ratio"] == pytest.approx(1.0, abs=1e-4), "log-probabilities of segments are those of the whole"
        credit = [[a for a in row["advantage"] if a is not None] for row in rows if not row["dropped_reason"]]
        assert all(len(set(own)) == 1 for own in credit)
        flat = np.concatenate(credit)
        assert (flat.mean(), flat.std(ddof=1)) == pytest.approx((0, 1), abs=1e-4)


def test_the_tree_is_in_the_record(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(treepo(small()), ["rollout.n=4", "rollout.segment=2", "steps=1"])
    _, store = train(with_reward(recipe, tmp_path, VARIED))
    tasks = defaultdict(list)
    for row in store.rollouts(1):
        tasks[row["task_key"]].append(row)
    for rows in tasks.values():
        ids = {row["sample"]: row["token_ids"] for row in rows}
        prompt = rows[0]["trained"].index(True)
        for row in rows:
            if row["parent"] is not None:
                assert row["token_ids"][: prompt + 2] == ids[row["parent"]][: prompt + 2]
    assert any(row["parent"] is not None for rows in tasks.values() for row in rows)
