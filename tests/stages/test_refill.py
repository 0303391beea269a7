"""Sampling again in a step until enough groups pass the filters."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.components.filters import Dropped
from posttrain.errors import AlarmStop
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.rl.refill import Refill
from posttrain.types import Group
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SOME_TASKS = (
    "def score(completion, task):\n"
    "    return (sum(map(ord, completion)) % 5) / 4 if sum(map(ord, task.prompt)) % 3 == 0 else 0.5\n"
)
"""Rewards of two tasks in three are all equal."""
VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
EQUAL = "def score(completion):\n    return 0.5\n"


def by_step(store: RunStore, step: int) -> tuple[dict[str, float], list[str], set[str]]:
    """Metrics of a step, the tasks of the groups that it trained on, and the reasons of the others."""
    rows = store.rollouts(step)
    trained = list(dict.fromkeys(row["task_key"] for row in rows if row["dropped_reason"] is None))
    reasons = {row["dropped_reason"] for row in rows if row["dropped_reason"] is not None}
    return store.metrics()[step - 1], trained, reasons


def test_a_step_is_sampled_until_it_is_full(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=4"), tmp_path, SOME_TASKS)
    _, alone = train(recipe)
    _, filled = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(rounds=20))}))
    prompts = recipe.stages["rl"].prompts
    fewer = []
    for step in (1, 2, 3):
        metrics, trained, reasons = by_step(filled, step)
        assert len(trained) == prompts and metrics["refills"] <= 20
        assert all(reason.startswith("all 4 rewards are") for reason in reasons - {"the step is full"})
        rows = filled.rollouts(step)
        assert len(rows) == 4 * prompts * (1 + metrics["refills"]), "every rollout is in the record"
        assert metrics["sampled_tokens"] == sum(sum(row["trained"]) for row in rows)
        fewer.append(len(by_step(alone, step)[1]))
    assert min(fewer) < prompts, "without it some steps train on fewer"
    begun = {row["task_key"] for row in alone.rollouts(1)}
    assert begun <= {row["task_key"] for row in filled.rollouts(1)}, "the first round is the same"


def test_where_nothing_is_dropped_nothing_changes(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=4", "filters={}"), tmp_path, VARIED)
    models, _ = train(recipe)
    filled, store = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(rounds=3))}))
    assert [entry["refills"] for entry in store.metrics()] == [0.0, 0.0, 0.0]
    for before, after in zip(models["policy"].parameters(), filled["policy"].parameters(), strict=True):
        assert before.equal(after)


def test_a_step_can_sample_more_than_it_trains_on(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=4", "filters={}"), tmp_path, VARIED)
    _, store = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(prompts=1))}))
    metrics, trained, reasons = by_step(store, 1)
    assert len(trained) == 1 and reasons == {"the step is full"}
    assert metrics["groups_over"] == recipe.stages["rl"].prompts - 1


def test_a_refill_that_cannot_fill_stops_and_says_why(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=2"), tmp_path, EQUAL)
    stopping = Refill(rounds=2, when_spent="stop")
    with pytest.raises(AlarmStop, match=r"after 2 refills only 0 of \d groups are left.*all 2 rewards are 0.5: 9\."):
        train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=stopping)}))


def test_what_is_over_is_dropped_from_the_end() -> None:
    groups = [Group(trajectories=(), key=str(i)) for i in range(3)]
    kept, over = Refill(prompts=2).cut(groups, [], 5)
    assert [group.key for group in kept] == ["0", "1"]
    assert over == [Dropped(group=groups[2], reason="the step is full")]
    assert Refill().cut(groups, [], 5) == (groups, [])
