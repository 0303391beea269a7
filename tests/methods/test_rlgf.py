"""RLGF: the policy and a guide write together, with a critic for each of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.rlgf import ROWS, rlgf
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
ALONE = ("experts=null", "balance=null", "learner.optimizer.lr=1e-2", "critic_learner.optimizer.lr=1e-2")


def actors(store: RunStore, step: int) -> set[tuple[tuple[str, bool], ...]]:
    """Who wrote what, and whether it is on the time axis, in the rollouts of a step."""
    return {tuple((s["actor"], s["trained"]) for s in row["segments"][1:]) for row in store.rollouts(step)}


@pytest.mark.slow
def test_the_guide_rolls_out_first_and_each_critic_learns_in_its_own_steps(
    small: Small, train: Train, tmp_path: Path
) -> None:
    recipe = small(rlgf(arithmetic()), *ALONE, "steps=5", "rollout.beta=1")
    models, store = train(with_reward(recipe, tmp_path, VARIED))
    late = {(("guide", False), ("policy", True))}
    assert [actors(store, step) for step in (1, 2)] == [{(("policy", True), ("guide", True))}] * 2
    assert [actors(store, step) for step in (3, 4, 5)] == [late] * 3
    entries = store.metrics()
    assert ["guide_critic/loss" in entry for entry in entries] == [True, True, False, False, False]
    assert ["critic/loss" in entry for entry in entries] == [False, False, True, True, True]
    assert models["policy"].version == 5 * 4 and models["guide"].version == 0
    assert models["guide_critic"].version == 2 * 4 and models["critic"].version == 3 * 4
    first = train(override(with_reward(recipe, tmp_path, VARIED), ["steps=1"]))[0]
    for given, own in zip(first["guide"].parameters(), models["guide"].parameters(), strict=True):
        assert given.equal(own), "a guide never changes"


def test_the_guides_tokens_have_no_loss_of_the_policy(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(rlgf(arithmetic()), *ALONE, "steps=1", "rollout.algorithm=aggrevated", "rollout.beta=0")
    before = train(with_reward(override(recipe, ["rollout.beta=1"]), tmp_path, VARIED))[0]
    models, store = train(with_reward(recipe, tmp_path, VARIED))
    assert models["policy"].version == 0 < before["policy"].version, "without prefixes it is not updated at all"
    assert models["guide_critic"].version == 4
    assert all(row["value"] is not None for row in store.rollouts(1))


@pytest.mark.slow
def test_lols_draws_one_algorithm_for_a_whole_step(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(rlgf(arithmetic()), *ALONE, "steps=8", "rollout.algorithm=lols", "rollout.tau=0.5", "rollout.beta=1")
    _, store = train(with_reward(recipe, tmp_path, VARIED))
    seen = [actors(store, step) for step in range(1, 9)]
    assert all(len(step) == 1 for step in seen) and len(set(map(frozenset, seen))) == 2


@pytest.mark.slow
def test_beta_0_is_ppo_to_the_bit(small: Small, train: Train, tmp_path: Path) -> None:
    ours = small(rlgf(arithmetic()), *ALONE, "rollout.algorithm=ppo_plus_plus", "rollout.beta=0", "reducer=tokens")
    ours = override(ours, ["objective=ppo_clip"])
    theirs = small(ppo(arithmetic()), *ALONE[2:], "penalties.kl.coefficient=0.001", "advantage.gamma=0.99")
    theirs = override(theirs, ["advantage.whiten=false"])
    (one, store), (other, plain) = (train(with_reward(recipe, tmp_path, VARIED)) for recipe in (ours, theirs))
    for role in ("policy", "critic"):
        for mine, yours in zip(one[role].parameters(), other[role].parameters(), strict=True):
            assert mine.equal(yours)
    assert [entry["loss"] for entry in store.metrics()] == [entry["loss"] for entry in plain.metrics()]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["lols", "d2lols"])
def test_both_critics_resume(small: Small, train: Train, tmp_path: Path, algorithm: str) -> None:
    recipe = small(rlgf(arithmetic()), f"rollout.algorithm={algorithm}", "steps=4", "checkpoints.every_steps=2")
    recipe = with_reward(recipe, tmp_path, VARIED)
    models, whole = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert resumed.metrics() == whole.metrics()
    for role in ("policy", "critic", "guide_critic"):
        for ours, theirs in zip(models[role].parameters(), again[role].parameters(), strict=True):
            assert np.array_equal(ours.detach().numpy(), theirs.detach().numpy())


def test_the_guides_tokens_have_no_penalty_in_the_reward(small: Small, train: Train, tmp_path: Path) -> None:
    """With gamma 1 and a critic at 0 the advantages of the guide's tokens are the score, whatever its KL."""
    recipe = small(rlgf(arithmetic()), *ALONE, "steps=1", "rollout.beta=1", "rollout.sampling.temperature=1")
    recipe = override(
        recipe, ["penalties.kl.coefficient=5", "advantage.advantage.gamma=1", "advantage.advantage.lam=1"]
    )
    recipe = override(recipe, ["models.reference.source=new", "models.reference.shape={kind: decoder, layers: 1}"])
    _, store = train(with_reward(recipe, tmp_path, VARIED))
    differs = 0
    for row in store.rollouts(1):
        _, prefix, rest = row["segments"]
        advantage = [x for x in row["advantage"] if x is not None]
        assert advantage[prefix["length"] :] == pytest.approx([row["reward"]] * rest["length"], abs=1e-6)
        differs += any(abs(x - row["reward"]) > 1e-3 for x in advantage[: prefix["length"]])
    assert differs, "the policy's own tokens have one"


def test_row() -> None:
    assert ROWS == (255,)
