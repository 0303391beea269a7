"""AceReason: stages of growing length, with cut rollouts left out early and kept late, at one temperature."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.components.filters.finished import Finished
from posttrain.components.selections.unsolved import Unsolved
from posttrain.datasets.overlap import Decontamination
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.acereason import acereason
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.rated_outcomes import rated_outcomes
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_lengths_grow_and_the_filter_is_off_in_the_last_stage() -> None:
    recipe = acereason()
    stages: Any = recipe.stages
    assert list(stages) == ["sft", "short", "middle", "long"] and sft_of(recipe).epochs == 5.0
    own = [stages[name] for name in ("short", "middle", "long")]
    assert [stage.rollout.sampling.max_tokens for stage in own] == [24, 48, 96]
    assert [isinstance(stage.filters.get("finished"), Finished) for stage in own] == [True, True, False]
    assert [isinstance(stage.selection, Unsolved) for stage in own] == [False, True, True]
    assert {stage.rollout.sampling.temperature for stage in own} == {1.9}
    assert sum(stage.steps for stage in own) == 60
    assert all((stage.learner.epochs, stage.learner.minibatches, stage.penalties) == (1, 1, {}) for stage in own)
    assert recipe.evaluation.decontamination == Decontamination(n=9, share=0.0)


@pytest.mark.slow
def test_the_loss_has_the_log_probabilities_at_the_sampling_temperature(
    small: Small, train: Train, tmp_path: Path
) -> None:
    """On policy the learner's log-probabilities are the sampler's, which are those at the temperature."""
    varied = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
    recipe = with_reward(
        small(grpo(arithmetic()), "rollout.sampling.temperature=1.9", "tasks.terms=[2, 2]"), tmp_path, varied
    )
    _, store = train(recipe)
    rows = [row for row in store.rollouts(1) if row["dropped_reason"] is None]
    for row in rows:
        sampled, learned = ([x for x in row[name] if x is not None] for name in ("sampled_logp", "trained_logp"))
        assert np.allclose(sampled, learned, atol=1e-4)
    assert store.metrics()[0]["sampler_gap"] < 1e-4


def test_a_rollout_without_a_limit_is_refused() -> None:
    with pytest.raises(UserError, match="has no limit of tokens to let grow"):
        acereason(rated_outcomes())
