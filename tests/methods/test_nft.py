"""NFT on a tiny new model: what it leaves out, and that on policy it is Dr. GRPO."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.nft import ROWS, nft
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

OFTEN = "def score(completion):\n    return float(sum(map(ord, completion)) % 3 == 0)\n"


def test_it_is_grpo_with_another_objective_and_many_updates() -> None:
    assert ROWS == (199,)
    changed = {d.path for d in differences(grpo(), nft())}
    assert changed == {
        "objective",
        "reducer",
        "refill",
        "steps",
        "prompts",
        "learner.minibatches",
        "learner.schedule.warmup",
    }


def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    """Others take the place of groups that are all right or all wrong; the later updates of a round are off policy."""
    recipe = small(nft(), "learner.minibatches=3", "prompts=6", "lr=1e-2", "learner.schedule.warmup=0")
    models, store = train(with_reward(recipe, tmp_path, OFTEN))
    assert models["policy"].version == 3 * 3
    dropped = 0
    for step, entry in enumerate(store.metrics(), start=1):
        groups = defaultdict(list)
        for row in store.rollouts(step):
            groups[row["group_index"]].append((row["reward"], row["dropped_reason"] is None))
        trained = [{reward for reward, _ in rollouts} for rollouts in groups.values() if any(k for _, k in rollouts)]
        assert all(len(rewards) == 2 for rewards in trained)
        assert len(trained) == 6 and entry["refills"] <= 9
        dropped += sum(len({reward for reward, _ in rollouts}) == 1 for rollouts in groups.values())
        assert 0.0 < entry["floored"] < 1.0
        assert entry["ratio"] != pytest.approx(1.0, abs=1e-3)
    assert dropped, "there was something to leave out"


@pytest.mark.slow
def test_with_one_update_a_batch_it_is_dr_grpo(small: Small, train: Train, tmp_path: Path) -> None:
    """The same steps to the same weights; with the weight that matches GRPO they are others."""
    shared = (
        *("prompts=6", "lr=1e-3", "learner.minibatches=1", "learner.schedule.warmup=0", "refill.rounds=9"),
        "reducer={kind: constant, length: 1000, average: false}",
    )
    recipes = [nft(), dr_grpo(), override(nft(), ["objective.prompt_weight=odds"])]
    runs = [train(with_reward(override(small(recipe), shared), tmp_path, OFTEN)) for recipe in recipes]
    (ours, own), (theirs, other), (_, odds) = runs
    for a, b in zip(own.metrics(), other.metrics(), strict=True):
        assert (a["reward"], a["completion_tokens"]) == (b["reward"], b["completion_tokens"])
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-3)
    for (name, x), y in zip(ours["policy"].named_parameters(), theirs["policy"].parameters(), strict=True):
        torch.testing.assert_close(x, y, atol=1e-4, rtol=1e-3, msg=name)
    assert odds.metrics()[0]["gradient_norm"] != pytest.approx(own.metrics()[0]["gradient_norm"], rel=0.1)


def test_without_negatives_only_correct_rollouts_count(small: Small, train: Train, tmp_path: Path) -> None:
    """The loss of the first update is 0 either way, since R = 1; what is learned is not."""
    once = ("steps=1", "prompts=6", "learner.minibatches=1", "lr=1e-3", "learner.schedule.warmup=0")
    losses = []
    for changes in (("objective.negative=0",), ()):
        recipe = with_reward(small(nft(), *once, *changes), tmp_path, OFTEN)
        _, store = train(recipe)
        losses.append(store.metrics()[0])
    assert losses[0]["loss"] == pytest.approx(0.0, abs=1e-5)
    assert losses[0]["gradient_norm"] != pytest.approx(losses[1]["gradient_norm"], rel=1e-2)
