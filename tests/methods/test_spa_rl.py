"""SPA-RL as a whole, tiny: imitation, an estimator that learns alone, and PPO whose rewards are those of turns."""

from collections.abc import Callable

import numpy as np
import pytest

from posttrain.errors import UserError
from posttrain.methods.credit.spa_rl import ROWS, spa_rl
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.methods.test_gigpo import SMALL

Train = Callable[[Recipe], tuple[Models, RunStore]]
TINY = (
    *SMALL,
    "progress.steps=2",
    "progress.batch=3",
    "progress.rollout.n=4",
    "progress.rollout.max_turns=4",
    "rl.penalties.kl.coefficient=0",
    "rl.penalties.progress.beta=0.5",
)


@pytest.fixture
def tiny() -> Recipe:
    return override(spa_rl(), TINY)


@pytest.mark.slow
def test_it_trains(tiny: Recipe, train: Train) -> None:
    """The estimator alone learns in its stage and is left as it is afterwards."""
    models, store = train(tiny)
    entries = store.metrics()
    assert [entry["stage"] for entry in entries] == ["sft"] * 4 + ["progress"] * 2 + ["rl"] * 3
    assert {role: model.version for role, model in models.items()} == {
        "policy": 4 + 3 * 4,
        "progress": 2 * 4,
        "critic": 3 * 4,
        "reference": 0,
    }
    for entry in entries[4:6]:
        assert entry["trained_tokens"] == pytest.approx(12 * entry["turns"])
        assert {"total_error", "contribution"} <= entry.keys() and entry["sampled_tokens"] > 0
    assert ROWS == (228,)


@pytest.mark.slow
def test_rewards_of_turns_replace_the_score(tiny: Recipe, train: Train) -> None:
    """GAE without a critic's help: with lam 1 and no whitening, advantage plus value is the reward still to come."""
    _, store = train(override(tiny, ["rl.advantage.lam=1", "rl.advantage.whiten=false", "rl.steps=1"]))
    rows = store.rollouts(7)
    assert len(rows) == 12
    for row in rows:
        own = {name: [x for x in row[name] if x is not None] for name in ("advantage", "value", "progress_score")}
        to_come = np.add(own["advantage"], own["value"])
        turns = [s for s in row["segments"] if s["trained"]]
        ends = np.cumsum([s["length"] for s in turns]) - 1
        worth = np.array(own["progress_score"])[ends] + 0.5
        rewards = -np.diff(to_come[ends], append=0.0)
        np.testing.assert_allclose(rewards[-1], worth[-1], atol=1e-5)
        for reward, full in zip(rewards, worth, strict=True):
            assert min(abs(reward - full), abs(reward - full + 0.5)) < 1e-5, "with or without beta"


def test_the_estimator_must_be_trained(tiny: Recipe, train: Train) -> None:
    with pytest.raises(UserError, match=r"trains the role 'progress', but models.progress.trained is false"):
        train(override(tiny, ["models.progress.trained=false"]))
