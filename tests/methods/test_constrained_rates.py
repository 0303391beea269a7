"""Constrained rates and ASAF: what they change, and that everything on the map of the survey is there."""

import re
from collections.abc import Callable

import pytest

from posttrain.components.advantages.constrained import Constrained
from posttrain.components.objectives.asaf import ASAF
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.methods.rewards import constrained_rates as module
from posttrain.methods.sft_rl.asaf import asaf
from posttrain.recipes.catalogue import entries
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_what_they_change() -> None:
    recipe = module.constrained_rates()
    stage = rl_of(recipe)
    lr = stage.learner.optimizer.lr
    assert stage.advantage == Constrained(at_most={"long": 0.3}, rate=100 * lr) and not stage.filters
    assert isinstance(stage.reward, Sum) and stage.reward.weights == {"long": 0.0} and "reward_weight" in recipe.alarms
    own = Sum(parts={"a": Regex(pattern="x"), "b": Regex(pattern="y")})
    kept = override(arithmetic(), ["reward={kind: sum, parts: {a: {kind: regex, pattern: x}}}"])
    assert rl_of(module.constrained_rates(kept)).reward == Sum(parts={"a": own.parts["a"]})
    assert rl_of(asaf()).objective == ASAF()


def test_weights_are_metrics_of_a_run(small: Small, train: Train) -> None:
    recipe = override(small(module.constrained_rates(arithmetic())), ["advantage.at_most={long: 0.0}"])
    _, store = train(recipe)
    metrics = list(store.metrics())
    assert all(entry["weight/reward"] - entry["weight/long"] == pytest.approx(1.0) for entry in metrics)
    assert {"rate/long"} <= metrics[0].keys()


@pytest.mark.slow
def test_everything_on_the_map_is_there() -> None:
    text = (module.__doc__ or "").partition("What the thesis reads")[2].partition("Differs:")[0]
    rows = dict(re.findall(r"^    (\w+) {2,}(.+)$", text, re.MULTILINE))
    assert len(rows) == 7
    found = entries()
    families = {"reward": "reward", "posttrain diagnose": "diagnostic"}
    for name in (part for row in rows.values() for part in row.split(", ")):
        kind = name.rpartition(" ")
        family = families[kind[0]] if kind[0] else "recipe"
        assert any(entry.name == kind[2] and entry.family == family for entry in found), name
