"""W-REINFORCE and its halves: on a tiny new model, on the logits of a choice, on a bandit with many correct arms."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.filters import Filter
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.w_reinforce import ROWS, w_reinforce
from posttrain.recipes.changes import rl_of
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.types import Batch, Group
from tests.builders import group
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

ODD = "def score(completion):\n    return 1.0 if sum(map(ord, completion)) % 2 else -1.0\n"
ALWAYS = "def score(completion):\n    return 1.0\n"

WEIGHTED: tuple[str, ...] = ()
PLAIN = ("advantage.positive=1",)
RIGHT_ONLY = ("filters={only: {kind: outcome, keep: right}}", "advantage.positive=1")
WRONG_ONLY = ("filters={only: {kind: outcome, keep: wrong}}",)


def test_it_is_grpo_without_a_comparison() -> None:
    assert ROWS == (262,)
    changed = {d.path for d in differences(grpo(), w_reinforce())}
    assert changed == {
        "reward.wrong",
        "reward.missing",
        "advantage",
        "filters.zero_variance",
        "penalties.entropy",
        "learner.minibatches",
    }


def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(w_reinforce(), "learner.minibatches=2", "lr=1e-3"), tmp_path, ODD))
    assert models["policy"].version == 3 * 2
    for step, entry in enumerate(store.metrics(), start=1):
        rows = store.rollouts(step)
        assert {row["reward"] for row in rows} == {1.0, -1.0}
        for row in rows:
            assert row["dropped_reason"] is None
            given = [a for a in row["advantage"] if a is not None]
            assert given == pytest.approx([0.1 if row["reward"] > 0 else -1.0] * len(given))
        right = np.mean([row["reward"] > 0 for row in rows])
        assert entry["effective_positives"] == pytest.approx(0.1 * right / (0.1 * right + 1 - right))


@pytest.mark.parametrize(("changes", "kept", "advantage"), [(RIGHT_ONLY, 1.0, 1.0), (WRONG_ONLY, -1.0, -1.0)])
def test_each_half_learns_from_its_own(
    small: Small, train: Train, tmp_path: Path, changes: tuple[str, ...], kept: float, advantage: float
) -> None:
    recipe = with_reward(small(w_reinforce(), "learner.minibatches=1", "steps=1", *changes), tmp_path, ODD)
    _, store = train(recipe)
    rows = store.rollouts(1)
    assert {row["reward"] for row in rows if row["dropped_reason"] is None} == {kept}
    assert {row["reward"] for row in rows if row["dropped_reason"] is not None} == {-kept}
    learned = [x for row in rows if row["dropped_reason"] is None for x in row["advantage"] if x is not None]
    assert learned == [advantage] * len(learned)
    assert store.metrics()[0]["trained_tokens"] == len(learned), "what is left out is not in the mean over tokens"


def test_without_an_incorrect_rollout_there_is_no_update(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(w_reinforce(), *WRONG_ONLY), tmp_path, ALWAYS))
    assert models["policy"].version == 0
    assert [entry["reward"] for entry in store.metrics()] == [1.0] * 3


def weights(changes: tuple[str, ...]) -> tuple[float, float]:
    """What a correct and an incorrect rollout count, by the recipe's filters and advantage; 0 where it is left out."""
    stage = rl_of(override(w_reinforce(), changes))
    found = {1.0: 0.0, -1.0: 0.0}
    kept: list[Group] = [group([1.0, -1.0], length=1)]
    for part in stage.filters.values():
        assert isinstance(part, Filter)
        _, kept, _ = part(part.start(), kept)
    batch = Batch(
        groups=tuple(kept), token_rewards=tuple(np.array([r], np.float32) for g in kept for r in g.rewards.tolist())
    )
    _, credit = stage.advantage({}, batch)
    for trajectory, (advantage,) in zip(batch.trajectories, credit.advantages, strict=True):
        assert trajectory.score is not None
        found[trajectory.score.value] = float(advantage)
    return found[1.0], found[-1.0]


def test_the_weights_of_the_four_settings() -> None:
    assert weights(WEIGHTED) == pytest.approx((0.1, -1.0))
    assert weights(PLAIN) == (1.0, -1.0)
    assert weights(RIGHT_ONLY) == (1.0, 0.0)
    assert weights(WRONG_ONLY) == (0.0, -1.0)


def entropy(chance_A: np.ndarray) -> float:
    return float(-(chance_A * np.log(chance_A)).sum())


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def test_one_step_on_one_choice() -> None:
    """Chances .5, .3 and .2. A wrong first choice falls by 1 - .5, and the others rise by what each has."""
    chance_A = np.array([0.5, 0.3, 0.2])
    first_A = np.eye(3)[0] - chance_A
    right, _ = weights(RIGHT_ONLY)
    _, wrong = weights(WRONG_ONLY)
    assert (wrong * first_A).tolist() == pytest.approx([-0.5, 0.3, 0.2])
    after_psr = softmax(np.log(chance_A) + 0.1 * right * first_A)
    after_nsr = softmax(np.log(chance_A) + 0.1 * wrong * first_A)
    assert entropy(after_psr) < entropy(chance_A) < entropy(after_nsr)


@pytest.mark.parametrize("changes", [WEIGHTED, PLAIN, RIGHT_ONLY, WRONG_ONLY])
def test_the_expected_step_is_the_same_but_for_its_scale(changes: tuple[str, ...]) -> None:
    """Arms 0 and 1 of four are right. With rewards of 1 and 0 it is p (r - mean r), and here right - wrong times it."""
    chance_A, right_A = np.array([0.1, 0.3, 0.4, 0.2]), np.array([1.0, 1.0, 0.0, 0.0])
    right, wrong = weights(changes)
    weight_A = np.where(right_A > 0, right, wrong)
    expected = (chance_A * weight_A) @ (np.eye(4) - chance_A)
    assert expected == pytest.approx((right - wrong) * chance_A * (right_A - 0.4))


def correct_arms(
    changes: tuple[str, ...], *, spread: float, seeds: int = 30, arms: int = 50, good: int = 10
) -> np.ndarray:
    """[seeds, 2] effective number of right arms (exp of their entropy) when 80 % and 95 % of the pulls are right.

    Ten arms of fifty are. One pull a step, rate 0.1; logits start with std `spread`, the same for every method.
    """
    arms, good, rng, (right, wrong) = 50, 10, np.random.default_rng(0), weights(changes)
    logits = spread * rng.normal(size=(seeds, arms))
    found = np.full((seeds, 2), np.nan)
    while np.isnan(found).any():
        chance = softmax(logits)
        accuracy = chance[:, :good].sum(1)
        for place, level in enumerate((0.8, 0.95)):
            for seed in np.flatnonzero(np.isnan(found[:, place]) & (accuracy >= level)):
                found[seed, place] = np.exp(entropy(chance[seed, :good] / accuracy[seed]))
        arm = (chance.cumsum(1) < rng.random((seeds, 1))).sum(1).clip(max=arms - 1)
        logits += 0.1 * np.where(arm < good, right, wrong)[:, None] * (np.eye(arms)[arm] - chance)
    return found


def gap(more: np.ndarray, fewer: np.ndarray) -> tuple[float, float]:
    """Mean difference at 80 %, and its standard error."""
    difference = (more - fewer)[:, 0]
    return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


def test_at_equal_accuracy_more_correct_arms_are_alive_where_failures_count_more() -> None:
    """From a nearly even start. From an uneven one thirty seeds show no difference: the prior has decided."""
    even = {c: correct_arms(c, spread=0.1) for c in (WEIGHTED, PLAIN, RIGHT_ONLY, WRONG_ONLY)}
    for more, fewer in ((WRONG_ONLY, RIGHT_ONLY), (WEIGHTED, PLAIN)):
        mean, error = gap(even[more], even[fewer])
        assert mean > 4 * error, (mean, error)
        assert even[more][:, 1].mean() > even[fewer][:, 1].mean()
    uneven = {c: correct_arms(c, spread=1.0) for c in (RIGHT_ONLY, WRONG_ONLY)}
    mean, error = gap(uneven[WRONG_ONLY], uneven[RIGHT_ONLY])
    assert abs(mean) < 2 * error, (mean, error)
    for found in (*even.values(), *uneven.values()):
        assert (found[:, 1] < found[:, 0]).all(), "all collapse in the end"
