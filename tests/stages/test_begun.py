"""Groups that a step begins and a later one finishes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def in_parts(small: Small, folder: Path, **changed: int) -> Recipe:
    """A random model that writes up to 12 tokens, 4 in a step."""
    recipe = small(grpo(), "steps=6", "checkpoints.every_steps=1", "lr=1e-2")
    budget = changed.get("budget", 4)
    recipe = override(recipe, [f"rollout={{kind: partial, n: 4, budget: {budget}, sampling: {{max_tokens: 12}}}}"])
    return with_reward(recipe, folder, "def score(completion):\n    return float(sum(map(ord, completion)) % 2)\n")


@pytest.mark.slow
def test_a_run_goes_on_with_what_it_has_begun_also_after_it_was_cut_off(
    small: Small, train: Train, tmp_path: Path
) -> None:
    recipe = in_parts(small, tmp_path)
    _, store = train(recipe)
    rows = [*store.rollouts(3), *store.rollouts(6)]  # 12 tokens take three steps, and a random model seldom ends
    lengths = [sum(x is not None for x in row["trained_logp"] or ()) for row in rows]
    assert max(lengths) == 12 and max(entry["sampled_tokens"] for entry in store.metrics()) <= 4 * 4 * 4
    _, again = cut_off_and_resumed(recipe, tmp_path / "again", at=3)
    assert store.metrics() == again.metrics()


@pytest.mark.slow
def test_with_a_lag_rollouts_go_on_in_the_next_step_that_is_sampled(small: Small, train: Train, tmp_path: Path) -> None:
    """Rollouts end in steps 3 and 6. Step 4 is sampled before step 3 is learned from, 5 and 6 after it; cut off, it is
    the same run.
    """
    recipe = override(in_parts(small, tmp_path), ["schedule={kind: lagged, steps: 1}"])
    _, store = train(recipe)
    versions = [[s["version"] for s in row["segments"] if s["trained"]] for row in store.rollouts(6)]
    assert [0, 1, 1] in versions
    _, again = cut_off_and_resumed(recipe, tmp_path / "again", at=3)
    assert store.metrics() == again.metrics()


@pytest.mark.slow
def test_with_room_for_all_it_is_independent(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = in_parts(small, tmp_path, budget=12)
    plain = override(recipe, ["rollout={kind: independent, n: 4, sampling: {max_tokens: 12}}"])
    assert train(recipe)[1].metrics() == train(plain)[1].metrics()
