"""CORY: two agents, one reward, exchanged roles."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.methods.multi_agent.cory import ROWS, cory
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.corridor import corridor
from posttrain.signals import OLD_VALUE, Signal
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"


def test_it_is_ppo_twice_with_a_team() -> None:
    assert ROWS == (68,)
    assert rl_of(cory()).roles == {"policy", "observer", "critic", "observer_critic", "reference"}
    assert rl_of(cory()).needs == {OLD_VALUE, Signal("reverse_kl", of="reference", old=True)}


@pytest.mark.slow
def test_both_learn_from_the_sum_and_the_record_distinguishes_them(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(cory(small(None, "rollout.n=2")), ["steps=2"])
    _, store = train(with_reward(recipe, tmp_path, VARIED))
    first, second = store.metrics()
    for entry in (first, second):
        assert entry["reward"] == pytest.approx(entry["reward/pioneer"] + entry["reward/observer"])
        assert entry["observer/reward"] == pytest.approx(entry["reward"])
        assert entry["score/std"] == pytest.approx(entry["observer/score/std"]), "the same scores"
        assert entry["loss"] != entry["observer/loss"]
        assert entry["sampled_tokens"] == entry["trained_tokens"] + entry["observer/trained_tokens"]
        assert {"critic/loss", "observer_critic/loss"} <= entry.keys()
    assert second["kl/reference"] != second["observer/kl/reference"]
    assert first["kl/reference"] == pytest.approx(0.0, abs=1e-6) and second["kl/reference"] > 0
    rows = store.rollouts(2)
    assert len(rows) == 3 * 2 * 2 and all(row["dropped_reason"] is None for row in rows)
    assert len({row["group_index"] for row in rows}) == 6
    for row in rows:
        values = [row[column][-1] for column in ("advantage", "value", "trained_logp", "reference_kl")]
        assert None not in values


def test_an_environment_of_several_turns_is_refused() -> None:
    with pytest.raises(UserError, match="an environment of several turns"):
        cory(corridor())
