"""The loop: what it learns from, what it leaves out, what it records, and when it stops."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.errors import AlarmStop, UserError
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.policy_gradient.reinforce_plus_plus import reinforce_plus_plus
from posttrain.methods.policy_gradient.rloo import rloo
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import OLD_VALUE, logp_of
from posttrain.stages import Models
from posttrain.stages.rl import RL
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
EQUAL = "def score(completion):\n    return 0.5\n"
FAILING = "def score(completion):\n    raise RuntimeError('the grader is down')\n"
SOMETIMES = (
    "def score(completion):\n"
    "    if sum(map(ord, completion)) % 3 == 0:\n"
    "        return float('nan')\n"
    "    return (sum(map(ord, completion)) % 5) / 4\n"
)


@pytest.mark.parametrize("recipe", [grpo, dr_grpo, rloo, reinforce_plus_plus, ppo], ids=lambda r: r.__name__)
def test_every_recipe_trains_and_its_record_is_complete(
    recipe: Callable[[], Recipe], small: Small, train: Train, tmp_path: Path
) -> None:
    models, store = train(with_reward(small(recipe(), "filters={}"), tmp_path, VARIED))
    metrics = store.metrics()
    assert [entry["stage_step"] for entry in metrics] == [1, 2, 3]
    assert models["policy"].version == sum(
        1
        for _ in metrics
        for _ in range(4 if recipe is ppo else 1)  # PPO: two passes of two minibatches
    )
    rows = store.rollouts(2)
    assert len(rows) == 12
    for row in rows:
        assert row["dropped_reason"] is None
        assert row["score_status"] in ("ok", "wrong")
        trained = [i for i, is_trained in enumerate(row["trained"]) if is_trained]
        for column in ("sampled_logp", "trained_logp", "ratio", "advantage"):
            assert all(row[column][i] is not None and math.isfinite(row[column][i]) for i in trained), column
        assert all(row["advantage"][i] is None for i in range(len(row["trained"])) if i not in trained)
    if recipe is not ppo:
        assert all(ratio == pytest.approx(1.0, abs=1e-4) for row in rows for ratio in row["ratio"] if ratio is not None)
    if recipe in (grpo, dr_grpo, reinforce_plus_plus):
        assert all(entry["ratio"] == pytest.approx(1.0, abs=1e-4) for entry in metrics)
    if recipe is ppo:
        assert all(math.isfinite(entry["critic/loss"]) for entry in metrics)
    if recipe in (rloo, reinforce_plus_plus, ppo):
        assert metrics[0]["kl/reference"] == pytest.approx(0.0, abs=1e-6)
        assert metrics[-1]["kl/reference"] > metrics[0]["kl/reference"]


def test_weights_change_only_where_rewards_differ(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(), tmp_path, EQUAL))
    assert models["policy"].version == 0
    for entry in store.metrics():
        assert entry["zero_variance"] == 1.0
        assert "loss" not in entry
    assert {row["dropped_reason"] for row in store.rollouts(1)} == {row["dropped_reason"] for row in store.rollouts(3)}
    assert all("rewards" in str(row["dropped_reason"]) for row in store.rollouts(1))


def test_a_grader_that_fails_gives_neither_ok_nor_wrong(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(None, "max_grader_errors=1.0", "filters={}"), tmp_path, SOMETIMES))
    rows = [row for step in (1, 2, 3) for row in store.rollouts(step)]
    failed = [row for row in rows if row["score_status"] == "error"]
    assert failed
    for row in failed:
        assert row["dropped_reason"] == "grader error"
        assert "nan" in row["score_explanation"].lower()
        assert row["advantage"] is None or all(value is None for value in row["advantage"])
    for entry, step in zip(store.metrics(), (1, 2, 3), strict=True):
        values = [row["reward"] for row in store.rollouts(step) if row["score_status"] != "error"]
        assert entry["reward"] == pytest.approx(sum(values) / len(values))
        assert entry["grader_errors"] == pytest.approx(1 - len(values) / 12)


def test_a_run_whose_grader_is_down_stops_with_the_evidence(small: Small, train: Train, tmp_path: Path) -> None:
    with pytest.raises(AlarmStop, match=r"12 of 12 rollouts of this step could not be scored.*the grader is down"):
        train(with_reward(small(), tmp_path, FAILING))


def test_a_kl_penalty_in_the_loss_reports_its_estimate(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(None, "models.reference.source=role:policy", "penalties.kl.kind=kl", "penalties.kl.form=k3")
    _, store = train(with_reward(override(recipe, ["filters={}"]), tmp_path, VARIED))
    estimates = [entry["kl/estimate"] for entry in store.metrics()]
    assert estimates[0] == pytest.approx(0.0, abs=1e-6)
    assert estimates[-1] > 0


def test_recomputed_ratios_agree_with_sampled_ones(small: Small, train: Train, tmp_path: Path) -> None:
    """The native sampler's log-probabilities are the learner's, so it makes no difference which are taken."""
    sampled = with_reward(small(), tmp_path, VARIED)
    losses = []
    for recipe in (sampled, override(sampled, ["old_logp=recomputed"])):
        losses.append([entry["loss"] for entry in train(recipe)[1].metrics()])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


@pytest.mark.slow
def test_the_entropy_bonus_raises_entropy(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(None, "steps=10", "lr=2e-2", "filters={}"), tmp_path, VARIED)
    entropies = []
    for coefficient in (-1.0, 1.0):
        changed = override(recipe, ["penalties.entropy.kind=entropy", f"penalties.entropy.coefficient={coefficient}"])
        entropies.append(train(changed)[1].metrics()[-1]["entropy"])
    assert entropies[1] > entropies[0] + 0.05


def test_needs_are_worked_out_from_the_parts() -> None:
    stage = ppo().stages["rl"]
    assert isinstance(stage, RL)
    assert stage.needs == {OLD_VALUE, logp_of("reference")}
    assert stage.roles == {"policy", "critic", "reference"}


def test_a_penalty_without_its_reference_is_refused_before_training(small: Small, train: Train) -> None:
    with pytest.raises(
        UserError, match=r"needs a model in the role 'reference'; write models.reference.source=role:policy"
    ):
        train(small(None, "penalties.kl.kind=kl"))


def test_steps_of_a_small_pool_draw_different_completions_for_the_same_task(
    small: Small, train: Train, tmp_path: Path
) -> None:
    recipe = with_reward(small(None, "tasks.size=2", "prompts=4", "evaluation.holdout=1"), tmp_path, VARIED)
    _, store = train(recipe)
    texts = [row["completion"] for step in (1, 2, 3) for row in store.rollouts(step)]
    assert len(set(texts)) > 0.9 * len(texts)
