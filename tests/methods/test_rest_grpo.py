"""ReST-GRPO: given prefixes are not trained on, and groups of small std are dropped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from posttrain.methods.search.rest_grpo import ROWS, rest_grpo
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
MANY_LINES = ("rollout.delimiter=e", "rollout.accept=0.5", "tasks.terms=[2, 2]", "rollout.sampling.max_tokens=12")


def test_groups_and_what_is_learned(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(rest_grpo(), *MANY_LINES), tmp_path, VARIED))
    begun = 0
    for step in range(1, 4):
        rows = store.rollouts(step)
        for index in {row["group_index"] for row in rows if row["dropped_reason"] is None}:
            group = [row for row in rows if row["group_index"] == index and row["dropped_reason"] is None]
            assert np.std([row["reward"] for row in group]) >= 0.05
            actors = [[s["actor"] for s in row["segments"]] for row in group]
            assert len(group) == 4 and all(a == actors[0] for a in actors), "a group has one beginning"
            if "demonstration" in actors[0]:
                begun += 1
                given = group[0]["segments"][0]["length"] + group[0]["segments"][1]["length"]
                for row in group:
                    assert row["token_ids"][:given] == group[0]["token_ids"][:given]
                    assert not any(row["trained"][:given]) and all(row["trained"][given:])
    assert begun
    assert ROWS == (226,)


def test_reported_rewards_are_of_plain_rollouts(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(rest_grpo(), *MANY_LINES), tmp_path, VARIED))
    for step, entry in enumerate(store.metrics(), start=1):
        plain = [
            row["reward"] for row in store.rollouts(step) if all(s["actor"] != "demonstration" for s in row["segments"])
        ]
        assert len(plain) == 12 and entry["reward"] == np.mean(plain)
