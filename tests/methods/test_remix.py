"""ReMix: earlier rollouts beside fresh ones up to a step, then a new reference and fresh rollouts only."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.policy_gradient.remix import ROWS, remix
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from posttrain.stages.rl.replay import Replay
from tests.builders import group
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
SWITCH = ("refill.replay.steps=3", "hooks.reincarnation.every=3", "steps=5", "lr=1e-2")


def age(row: Mapping[str, Any]) -> int:
    return int(json.loads(row["info"] or "{}").get("age", 0))


def test_replay_up_to_the_switch_and_a_new_reference_there(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(remix(), *SWITCH, "refill.replay.share=0.5", "prompts=4"), tmp_path, VARIED)
    models, store = train(recipe)
    ages = [{age(row) for row in store.rollouts(step)} for step in range(1, 6)]
    assert ages[0] == {0} and 0 < max(ages[1] | ages[2]) <= 2
    assert ages[3] == ages[4] == {0}, "nothing earlier after the switch"
    entries = store.metrics()
    for step, entry in enumerate(entries, start=1):
        rows = store.rollouts(step)
        fresh = {row["task_key"] for row in rows if age(row) == 0}
        assert entry["groups_replayed"] + len(fresh) == 4
        assert entry["sampled_tokens"] == sum(sum(row["trained"]) for row in rows if age(row) == 0)
    assert models["policy"].version == 3 * 2 + 2 * 1, "two epochs before the switch, and one after it"
    assert models["reference"].version == 6 and models["previous"].version == 8


@pytest.mark.slow
def test_earlier_rollouts_keep_their_sampled_log_probabilities(small: Small, train: Train, tmp_path: Path) -> None:
    """The center of the clip is the ratio of the present policy to the one that sampled them."""
    recipe = with_reward(small(remix(), *SWITCH, "refill.replay.share=1", "refill.replay.window=1"), tmp_path, VARIED)
    _, store = train(recipe)
    first = {(r["task_key"], tuple(r["token_ids"])): r for r in store.rollouts(1)}
    again = [row for row in store.rollouts(2) if age(row) == 1]
    assert len(again) == len(first) == 12
    for row in again:
        before = first[row["task_key"], tuple(row["token_ids"])]
        assert row["sampled_logp"] == before["sampled_logp"] and row["reward"] == before["reward"]
    assert store.metrics()[1]["sampled_tokens"] == 0 and store.metrics()[2]["sampled_tokens"] > 0
    assert store.metrics()[0]["log_ratio_size"] < 1e-6 < 1e-3 < store.metrics()[1]["log_ratio_size"]


@pytest.mark.slow
@pytest.mark.parametrize("parent", [grpo, ppo])
def test_without_replay_and_regularizers_it_is_the_parent_to_the_bit(
    parent: Callable[[Recipe], Recipe], small: Small, train: Train, tmp_path: Path
) -> None:
    changes = ("learner.epochs=1", "penalties={}", "lr=1e-2")
    bare = small(remix(parent(arithmetic())), "refill.replay.share=0", *changes)
    (ours, store), (theirs, other) = (
        train(with_reward(recipe, tmp_path, VARIED)) for recipe in (bare, small(parent(arithmetic()), *changes))
    )
    assert any(entry["gradient_norm"] > 0.0 for entry in other.metrics())
    for mine, yours in zip(ours["policy"].parameters(), theirs["policy"].parameters(), strict=True):
        assert mine.equal(yours)
    assert [entry["loss"] for entry in store.metrics()] == [entry["loss"] for entry in other.metrics()]


@pytest.mark.slow
def test_the_window_is_in_the_checkpoint(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(remix(), *SWITCH, "refill.replay.share=0.5", "checkpoints.every_steps=1")
    recipe = with_reward(recipe, tmp_path, VARIED)
    models, whole = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert resumed.metrics() == whole.metrics()
    assert [resumed.rollouts(step) for step in range(1, 6)] == [whole.rollouts(step) for step in range(1, 6)]
    for role in ("policy", "reference", "previous"):
        for ours, theirs in zip(models[role].parameters(), again[role].parameters(), strict=True):
            assert ours.equal(theirs)


def test_ppo_with_it_keeps_its_critic(small: Small) -> None:
    stage = rl_of(remix(ppo(arithmetic())))
    assert (
        stage.critic is not None
        and stage.advantage.kind == "gae"
        and stage.refill is not None
        and stage.refill.replay is not None
    )
    assert ROWS == (0,)


@pytest.mark.slow
def test_earlier_rollouts_are_no_sample_of_the_kl_metric(small: Small, train: Train, tmp_path: Path) -> None:
    """Of a step with earlier rollouts only, there is no estimate; the policy has moved."""
    changes = (*SWITCH, "refill.replay.share=1", "refill.replay.window=1", "penalties={kl: kl}", "objective=ppo_clip")
    _, store = train(with_reward(small(remix(), *changes), tmp_path, VARIED))
    found = [entry["kl/reference"] for entry in store.metrics()]
    assert found[1] == 0.0 < found[2], "the second step is earlier rollouts only, the third fresh ones"


def test_draws() -> None:
    """A place is an earlier group with the given probability; none is drawn twice, and policies are equally likely."""
    tasks = [t.task for t in group([0.0])]
    memory: list[Mapping[str, Any]] = []
    replay = Replay(share=0.4, window=2)
    for step in range(4):
        memory = replay.keep(memory, [group([float(step), i], key="task") for i in range(100)], step)
    assert [kept["step"] for kept in memory] == [2, 3]
    counts = {1: 0, 2: 0}
    for seed in range(20):
        drawn = replay.draw(memory, tasks, 100, seed=seed, step=4)
        assert len({(g.rewards[0], g.rewards[1]) for g in drawn}) == len(drawn)
        for g in drawn:
            counts[4 - int(g.rewards[0])] += 1
    assert sum(counts.values()) == pytest.approx(800, abs=75)  # of 22
    assert counts[1] == pytest.approx(400, abs=62)
    assert replay.draw(memory, tasks, 100, seed=0, step=50) == [] and replay.keep(memory, [], 49) == []
    assert len(Replay(share=1.0).draw(memory, tasks, 300, seed=0, step=4)) == 200, "no more than there are"
    assert replay.draw(memory, [], 100, seed=0, step=4) == [], "tasks that are gone"


def test_the_default_switches_in_the_middle() -> None:
    stage = rl_of(remix())
    assert stage.refill is not None
    assert stage.refill.replay == Replay(share=0.4, window=2, steps=50, epochs_after=1) and stage.learner.epochs == 2
    assert rl_of(override(remix(), ["refill.replay.epochs_after=null"])).refill.epochs(60) is None  # type: ignore[union-attr]
