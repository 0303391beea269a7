"""Confucius3-Math: three stages, gates, reused surplus, an entropy target first and hardness weights later."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.penalties.target_entropy import TargetEntropy
from posttrain.methods.policy_gradient.confucius3 import ROWS, confucius3
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from posttrain.stages.rl import RL
from tests.stages.conftest import SMALL, with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

EQUAL = "def score(completion):\n    return 0.5\n"


def stages(recipe: Recipe) -> list[RL]:
    return [stage for stage in recipe.stages.values() if isinstance(stage, RL)]


def test_three_stages_of_growing_length() -> None:
    first, double, quadruple = stages(confucius3())
    assert [s.rollout.sampling.max_tokens for s in (first, double, quadruple)] == [96, 192, 384]  # type: ignore[attr-defined]
    assert isinstance(first.penalties["entropy"], TargetEntropy) and first.advantage.kind == "group_mean"
    for later in (double, quadruple):
        assert not later.penalties and later.advantage.kind == "hardness" and later.reducer.kind == "constant"
    assert all(s.refill is not None and s.refill.surplus == "carry" for s in (first, double, quadruple))
    assert list(confucius3().stages) == ["sft", "rl", "rl_double", "rl_quadruple"]
    assert ROWS == (148,)


def test_auto_stays_auto() -> None:
    recipe = confucius3(override(arithmetic(), ["rollout.sampling.max_tokens=auto"]))
    assert len({str(s.rollout.sampling.max_tokens) for s in stages(recipe)}) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", [0.5, 6.0])
def test_entropy_moves_to_the_target_from_both_sides(small: Small, train: Train, tmp_path: Path, target: float) -> None:
    """Rewards are all equal, so that the penalty alone acts; the new model has 5.558 nats."""
    penalty = f"penalties={{entropy: {{kind: target_entropy, coefficient: 1.0, target: {target}}}}}"
    recipe = small(None, "filters={}", "lr=1e-3", "steps=4", "reducer=tokens", penalty, *SMALL[3:4])
    _, store = train(with_reward(recipe, tmp_path, EQUAL))
    found = [entry["entropy"] for entry in store.metrics()]
    moves = np.diff(np.abs(np.array(found) - target))
    assert (moves < 0).all(), found
