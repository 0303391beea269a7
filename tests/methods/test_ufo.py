from collections.abc import Callable

import pytest

from posttrain.components.environments.try_again import TryAgain
from posttrain.methods.agents.ufo import ROWS, ufo
from posttrain.recipe.overrides import override
from posttrain.recipe.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.rl import RL
from tests.methods.test_gigpo import SMALL

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_the_settings_are_those_of_the_released_code() -> None:
    assert ROWS == (268,)
    stage = ufo().stages["rl"]
    assert isinstance(stage, RL)
    world = getattr(stage.rollout, "environment")  # noqa: B009
    assert isinstance(world, TryAgain)
    assert (world.tries, world.gamma, world.repetition, world.no_answer) == (5, 0.5, 0.5, 0.1)
    assert stage.needs == {"value", "reference_logp"}


def test_the_quarter_that_differs_most_is_learned_from(train: Train) -> None:
    recipe = override(
        ufo(), [*SMALL, "rl.prompts=4", "rl.steps=2", "rl.rollout.max_turns=5", "filters.most_varied.keep=0.25"]
    )
    models, store = train(recipe)
    assert models["policy"].version > 4 and models["critic"].version > 0
    for step in (5, 6):
        rows = store.rollouts(step)
        assert len(rows) == 16
        kept = [row for row in rows if row["dropped_reason"] is None]
        assert len(kept) == 4 and len({row["task_key"] for row in kept}) == 1
        assert all(row["dropped_reason"].startswith("not among the 0.25") for row in rows if row not in kept)
    summary = store.evaluations()[-1]
    assert summary["verifier"] == "verdict"
    assert 1 <= summary["mean_turns"] <= 5


def test_a_policy_of_one_turn_is_judged_in_five(train: Train) -> None:
    """The other side of the smallest experiment: trained on one try, held-out tasks attempted with five."""
    recipe = override(ufo(), [*SMALL, "rl.steps=1", "rl.rollout.max_turns=1"])
    _, store = train(recipe)
    assert all(entry["turns"] == 1 for entry in store.metrics() if entry["stage"] == "rl")
    assert store.evaluations()[-1]["mean_turns"] > 1
    assert store.evaluations()[-1]["mean_turns"] == pytest.approx(5, abs=2)
