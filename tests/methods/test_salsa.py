"""SALSA: the soup is the reference and nothing else is different from PPO."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.preference.salsa import ROWS, salsa
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.quickstart import quickstart
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = ("second.max_steps=2", "sft.max_steps=2", "second.learner.optimizer.lr=1e-2")


def rl_steps(store: RunStore) -> list[dict[str, float]]:
    return [{**entry, "step": entry["stage_step"]} for entry in store.metrics() if entry["stage"] == "rl"]


@pytest.mark.slow
def test_with_all_weight_on_the_policy_it_is_ppo_to_the_last_bit(small: Small, train: Train) -> None:
    """The reference is then the model that reinforcement begins with, as PPO takes it."""
    recipe = small(salsa(), *SHORT, "soup.method.weights=[1, 0]")
    without = {name: stage for name, stage in recipe.stages.items() if name != "soup"}
    plain = replace(recipe, stages=without, models={**recipe.models, "reference": Model(source="role:policy")})
    ours, theirs = rl_steps(train(recipe)[1]), rl_steps(train(plain)[1])
    assert len(ours) == 3 and ours == theirs
    assert ours[0]["kl/reference"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_the_policy_starts_away_from_the_soup(small: Small, train: Train) -> None:
    soup, alone = (
        rl_steps(train(small(salsa(), *SHORT, f"soup.method.weights={weights}"))[1])
        for weights in ("[0.5, 0.5]", "[1, 0]")
    )
    assert soup[0]["kl/reference"] > 1e-4 > alone[0]["kl/reference"]
    assert soup[0]["reward"] == alone[0]["reward"], "the first rollouts are written by one and the same model"


def test_only_the_reference_differs_from_ppo() -> None:
    ours, theirs = salsa(), ppo()
    assert rl_of(ours) == rl_of(theirs)
    assert rl_of(ours).penalties == {"kl": KL(coefficient=0.01, form="k1", where="reward")}
    assert {role: model for role, model in ours.models.items() if role in ("policy", "critic")} == {
        role: model for role, model in theirs.models.items() if role != "reference"
    }
    assert ROWS == (272,)


def test_both_models_imitate_by_the_settings_sft_stage() -> None:
    mine = quickstart()
    changed = salsa(mine)
    assert list(changed.stages) == ["second", "sft", "soup", "rl"]
    assert changed.stages["sft"] == sft_of(mine)
    assert changed.stages["second"] == replace(sft_of(mine), role="second")
    assert changed.models["reference"] == Model(source="made"), "also in the place of a reference that was there"
