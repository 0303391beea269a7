from collections.abc import Callable

import pytest

from posttrain.components.environments.try_again import TryAgain
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.methods.agents.ufo import ROWS, ufo
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.guessing import guessing
from posttrain.signals import OLD_VALUE, logp_of
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
    assert stage.needs == {OLD_VALUE, logp_of("reference")}


def test_any_question_may_be_answered_again() -> None:
    """Of a recipe of single answers, prompt, sampling and a tuned critic are kept; of an environment, its words."""
    mine = override(ppo(arithmetic()), ["rollout.n=6", "critic_learner.optimizer.lr=5e-3"])
    stage = rl_of(ufo(mine))
    assert stage.rollout == Turns(environment=TryAgain(), n=6, max_turns=5, sampling=Sampling(max_tokens=64))
    assert (stage.critic, stage.critic_learner) == (rl_of(mine).critic, rl_of(mine).critic_learner)
    assert ufo(mine).evaluation.verifier == Verdict(value="solved")
    spoken = override(guessing(), ["rollout.environment.feedback=Wrong."])
    assert rl_of(ufo(spoken)).rollout.environment == TryAgain(feedback="Wrong.")  # type: ignore[attr-defined]


def test_the_quarter_that_differs_most_is_trained_on(train: Train) -> None:
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


@pytest.mark.slow
def test_a_policy_of_one_turn_is_evaluated_in_five(train: Train) -> None:
    """The other side of the smallest experiment: trained on one try, held-out tasks answered with five."""
    recipe = override(ufo(), [*SMALL, "rl.steps=1", "rl.rollout.max_turns=1"])
    _, store = train(recipe)
    assert all(entry["turns"] == 1 for entry in store.metrics() if entry["stage"] == "rl")
    assert store.evaluations()[-1]["mean_turns"] > 1
    assert store.evaluations()[-1]["mean_turns"] == pytest.approx(5, abs=2)
