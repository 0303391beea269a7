"""Sampling again in a step until enough groups pass the filters."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.filters import Dropped
from posttrain.errors import AlarmStop
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.stages.rl.refill import Refill
from posttrain.types import Group
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_where_nothing_is_dropped_nothing_changes(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=4", "filters={}"), tmp_path, VARIED)
    models, _ = train(recipe)
    filled, store = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(rounds=3))}))
    assert [entry["refills"] for entry in store.metrics()] == [0.0, 0.0, 0.0]
    for before, after in zip(models["policy"].parameters(), filled["policy"].parameters(), strict=True):
        assert before.equal(after)


@pytest.mark.slow
def test_without_further_rounds_it_is_the_parent_to_the_bit(small: Small, train: Train, tmp_path: Path) -> None:
    """Also where filters drop groups."""
    recipe = with_reward(small(None, "rollout.n=4"), tmp_path, SOME_TASKS)
    models, _ = train(recipe)
    filled, _ = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(rounds=0))}))
    for before, after in zip(models["policy"].parameters(), filled["policy"].parameters(), strict=True):
        assert before.equal(after)


@pytest.mark.slow
def test_a_run_that_ends_inside_a_refill_goes_on_to_the_bit(
    small: Small, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = with_reward(small(None, "rollout.n=4", "checkpoints.every_steps=1"), tmp_path, SOME_TASKS)
    recipe = replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(rounds=20))})
    models, whole = train(recipe)
    first, second = (int(entry["refills"]) for entry in whole.metrics()[:2])
    assert second >= 1
    asked, is_full = [], Refill.is_full

    def ends(self: Refill, kept: Sequence[Group], prompts: int) -> bool:
        asked.append(len(kept))
        if len(asked) == first + 5:  # one call before sampling, one after each round: round 2 of step 2
            raise KeyboardInterrupt
        return is_full(self, kept, prompts)

    monkeypatch.setattr(Refill, "is_full", ends)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=99)
    assert resumed.metrics() == whole.metrics()
    assert [resumed.rollouts(step) for step in (1, 2, 3)] == [whole.rollouts(step) for step in (1, 2, 3)]
    for ours, theirs in zip(models["policy"].parameters(), again["policy"].parameters(), strict=True):
        assert ours.equal(theirs)


@pytest.mark.slow
def test_a_step_can_sample_more_than_it_trains_on(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=4", "filters={}"), tmp_path, VARIED)
    _, store = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=Refill(prompts=1))}))
    metrics, trained, reasons = by_step(store, 1)
    assert len(trained) == 1 and reasons == {"the step is full"}
    assert metrics["groups_over"] == recipe.stages["rl"].prompts - 1


def test_a_refill_that_cannot_fill_stops_and_states_why(small: Small, train: Train, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_copies_take_the_places_of_dropped_groups_without_sampling(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "rollout.n=4"), tmp_path, SOME_TASKS)
    _, alone = train(recipe)
    copying = Refill(rounds=0, when_spent="copies")
    _, copied = train(replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=copying)}))
    prompts = recipe.stages["rl"].prompts
    left = len(by_step(alone, 1)[1])
    metrics, trained, _ = by_step(copied, 1)
    assert 0 < left < prompts and len(trained) == left
    assert metrics["groups_copied"] == prompts - left
    assert metrics["sampled_tokens"] == alone.metrics()[0]["sampled_tokens"]
    assert len(copied.rollouts(1)) == len(alone.rollouts(1)), "a rollout is recorded once"


def test_copies_are_drawn_from_the_groups_that_are_left() -> None:
    groups = [Group(trajectories=(), key=str(i)) for i in range(3)]
    copying = Refill(rounds=0, when_spent="copies")
    copies = copying.copied(groups, 8, (0, 1))
    assert len(copies) == 5 and {id(group) for group in copies} <= {id(group) for group in groups}
    assert copies == copying.copied(groups, 8, (0, 1)) and copying.copied([], 8, (0, 1)) == []
    assert copying.copied(groups, 3, (0, 1)) == [] == Refill().copied(groups, 8, (0, 1))
    drawn = [group.key for step in range(300) for group in copying.copied(groups, 4, (0, step))]
    assert all(60 < drawn.count(key) < 140 for key in "012")


def age(row: Mapping[str, Any]) -> int:
    """Steps since a rollout was sampled."""
    return int(json.loads(row["info"] or "{}").get("age", 0))


def carried(recipe: Recipe, **settings: object) -> Recipe:
    refill = Refill(surplus="carry", **settings)  # type: ignore[arg-type]
    return replace(recipe, stages={"rl": replace(recipe.stages["rl"], refill=refill)})


def test_surplus_comes_first_in_the_next_step_and_only_there(small: Small, train: Train, tmp_path: Path) -> None:
    """Two of three groups train in a step, the third waits; a step that has both of its groups samples nothing."""
    recipe = with_reward(small(None, "rollout.n=4", "filters={}", "steps=5"), tmp_path, VARIED)
    _, store = train(carried(recipe, prompts=2))
    trained, sampled, waiting = [], [], []
    for step in range(1, 6):
        metrics, keys, _ = by_step(store, step)
        rows = store.rollouts(step)
        left = list(dict.fromkeys(r["task_key"] for r in rows if "next one has it" in str(r["dropped_reason"])))
        old = [r for r in rows if age(r) == 1]
        assert metrics["groups_carried"] == len({r["task_key"] for r in old})
        assert keys[: len(waiting)] == waiting, "what waited comes first"
        assert all(r["dropped_reason"] is None for r in old)
        trained += keys
        sampled.append(metrics["sampled_tokens"])
        waiting = left
    assert len(trained) == len(set(trained)) == 10, "no group is trained on twice"
    assert sampled[0] > 0, "three groups for steps one and a half"
    assert [len(by_step(store, step)[1]) for step in range(1, 6)] == [2] * 5


def test_what_waited_has_the_ratio_of_the_present_policy(small: Small, train: Train, tmp_path: Path) -> None:
    """Its ratio is 1 before the first update, although another policy sampled it; a high rate makes them differ."""
    recipe = with_reward(small(None, "rollout.n=4", "filters={}", "lr=3e-2"), tmp_path, VARIED)
    _, store = train(carried(recipe, prompts=2))
    rows = [row for row in store.rollouts(2) if age(row) == 1]
    assert rows
    for row in rows:
        assert [x for x in row["ratio"] if x is not None] == pytest.approx([1.0] * sum(row["trained"]), abs=1e-4)
    gaps = [
        abs(now - then)
        for row in rows
        for now, then in zip(row["trained_logp"], row["sampled_logp"], strict=True)
        if now is not None and then is not None
    ]
    assert max(gaps) > 0.01
    assert store.metrics()[1]["sampler_gap"] < 1e-4, "they are no gap between sampler and learner"


@pytest.mark.slow
def test_surplus_is_in_the_checkpoint(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(None, "rollout.n=4", "filters={}", "steps=4", "checkpoints.every_steps=1")
    recipe = carried(with_reward(recipe, tmp_path, VARIED), prompts=2)
    models, whole = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert resumed.metrics() == whole.metrics()
    assert [resumed.rollouts(step) for step in range(1, 5)] == [whole.rollouts(step) for step in range(1, 5)]
    for ours, theirs in zip(models["policy"].parameters(), again["policy"].parameters(), strict=True):
        assert ours.equal(theirs)
