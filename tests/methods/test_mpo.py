"""MPO on a tiny new model: two sets of pairs, and the reference that is handed from one stage to the next."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.preference.mpo import mpo
from posttrain.policies import Policy
from posttrain.recipes.catalogue import entries
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.preview import preview
from posttrain.runs.problems import Problems
from posttrain.runs.store import RunStore
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.signals import SCORE
from posttrain.stages import Models
from posttrain.stages.pairs import pair_examples
from posttrain.training.learner import evaluate_examples
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SHORT = (
    "tasks.terms=[2, 2]",
    "tasks.digits=[1, 1]",
    "reward_model.max_steps=2",
    "reward_model.batch=8",
    "dpo.batch=8",
    "dpo.max_steps=3",
    "dpo.learner.optimizer.lr=1e-2",
    "rl.learner.optimizer.lr=1e-3",
    "rl.audit.most_fooled=1",
)


def margins(recipe: Recipe, reward: Policy) -> dict[str, float]:
    """By task, how far apart the reward model puts the completions of its pair."""
    tasks = Problems(recipe).train
    examples = [e for i, task in enumerate(tasks) for e in pair_examples(reward, task, task.preferences[0], i)]
    found = evaluate_examples(reward, examples, frozenset({SCORE}), max_tokens=4096)
    score_P2 = np.array([signals[SCORE][-1] for signals in found]).reshape(-1, 2)
    return dict(zip((task.key for task in tasks), np.abs(score_P2[:, 0] - score_P2[:, 1]), strict=True))


def same_weights(ours: Policy, theirs: Policy) -> bool:
    pairs = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    return all(a.equal(b) for a, b in pairs)


def sampled_at(store: RunStore) -> set[str]:
    steps = [entry["step"] for entry in store.metrics() if entry["stage"] == "rl"]
    return {row["task_key"] for step in steps for row in store.rollouts(step)}


def notes(store: RunStore) -> list[str]:
    return [entry["message"] for entry in store.events() if entry["kind"] == "note"]


@pytest.mark.slow
def test_it_trains_on_easy_pairs_and_then_at_hard_prompts(small: Small, train: Train) -> None:
    recipe = small(mpo(), *SHORT, "prompts=8")
    models, store = train(recipe)
    assert [entry["stage"] for entry in store.metrics()] == ["reward_model"] * 2 + ["dpo"] * 3 + ["rl"] * 3
    gap = margins(recipe, models["reward"])
    gamma = float(np.median(list(gap.values())))
    hard = {key for key, margin in gap.items() if margin <= gamma}
    assert len(gap) == 55 and len(hard) == 28
    assert sampled_at(store) <= hard and len(sampled_at(store)) == 24
    assert [note.split(", with")[0] for note in notes(store)][-3:-1] == [
        "stage dpo: 27 of 55 pairs are easy",
        "stage rl: 28 of 55 pairs are hard",
    ]
    epochs = [entry["epoch"] for entry in store.metrics() if entry["stage"] == "dpo"]
    assert epochs == pytest.approx([8 / 27, 16 / 27, 24 / 27])


@pytest.mark.slow
def test_the_sets_can_be_swapped(small: Small, train: Train) -> None:
    recipe = small(mpo(), *SHORT, "prompts=8", "dpo.selection.keep=hard", "rl.selection.keep=easy")
    models, store = train(recipe)
    gap = margins(recipe, models["reward"])
    gamma = float(np.median(list(gap.values())))
    assert sampled_at(store) <= {key for key, margin in gap.items() if margin > gamma}


@pytest.mark.slow
def test_the_reference_of_the_second_stage_is_what_the_first_one_left(small: Small, train: Train) -> None:
    recipe = small(mpo(), *SHORT)
    models, store = train(recipe)
    before = {name: stage for name, stage in recipe.stages.items() if name != "rl"}
    left, _ = train(replace(recipe, stages=before))
    assert same_weights(models["reference"], left["policy"])
    assert not same_weights(left["reference"], left["policy"]), "DPO has moved away from the reference of its own"
    assert not same_weights(models["policy"], models["reference"])
    first, *_, last = [entry["kl/reference"] for entry in store.metrics() if entry["stage"] == "rl"]
    assert first == pytest.approx(0.0, abs=1e-9), "it begins as its reference; samplers differ in the last digit"
    assert last > 1e-7


@pytest.mark.slow
def test_without_easy_pairs_the_first_stage_is_left_out(small: Small, train: Train) -> None:
    recipe = small(mpo(), *SHORT, "dpo.selection.quantile=1")
    models, store = train(recipe)
    assert [entry["stage"] for entry in store.metrics()] == ["reward_model"] * 2 + ["rl"] * 3
    assert "stage dpo is left out, since no task was selected for it" in notes(store)
    assert models["reference"].version == 0 and models["policy"].version > 0


def test_without_hard_pairs_it_ends_after_the_first_stage(small: Small, train: Train) -> None:
    none = "rl.selection={kind: by_margin, reward: reward_model, keep: hard, quantile: null, margin: 0}"
    models, store = train(small(mpo(), *SHORT, none))
    assert [entry["stage"] for entry in store.metrics()] == ["reward_model"] * 2 + ["dpo"] * 3
    assert notes(store)[-1] == "stage rl is left out, since no task was selected for it"
    assert models["policy"].version == 3


@pytest.mark.parametrize("at", [4, 7])
@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(small: Small, train: Train, tmp_path: Path, at: int) -> None:
    """In the first stage and in the second: each goes on with the pairs that it had."""
    recipe = small(mpo(), *SHORT, "checkpoints.every_steps=1")
    models, store = train(recipe)
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=at)
    assert again.metrics() == store.metrics()
    assert notes(again) == notes(store)
    assert all(same_weights(models[role], resumed[role]) for role in ("policy", "reward", "critic"))


@pytest.mark.slow
def test_a_resumed_stage_keeps_its_pairs_although_the_reward_model_has_changed(
    small: Small, train: Train, tmp_path: Path
) -> None:
    """The policy itself judges here which completion is better, and is trained by the stage."""
    scored = "dpo.selection={kind: by_margin, reward: {kind: preference_model, role: policy}}"
    shape = "{kind: decoder, layers: 1, width: 32, heads: 2, kv_heads: 1}"
    new = f"models.policy={{source: new, shape: {shape}, trained: true}}"
    recipe = small(mpo(), *SHORT, scored, new, "rl.steps=1", "checkpoints.every_steps=1")
    _, store = train(recipe)
    assert [entry["stage"] for entry in store.metrics()].count("dpo") == 3
    _, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=5)
    assert again.metrics() == store.metrics()


def test_it_is_ppo_with_two_stages_before_it() -> None:
    ours = rl_of(mpo())
    assert ours == replace(rl_of(ppo(reward_model_sums())), selection=ours.selection)
    assert list(mpo().stages) == ["reward_model", "dpo", "rl"]
    assert override(mpo(), ["rl.selection.keep=easy"]) != mpo()


def test_it_is_listed_with_its_row() -> None:
    (found,) = [entry for entry in entries("recipe") if entry.name == "mpo"]
    assert (found.rows, found.source) == ((235,), "arXiv:2403.19443")


def test_a_dry_run_reports_a_selection(small: Small) -> None:
    said = preview(small(mpo(), *SHORT))
    assert (
        said["stage dpo (preference)"][0] == "3 steps on 55 tasks, of which by_margin leaves some when the stage begins"
    )
    assert said["stage reward_model (reward_model)"][0] == "2 steps on 55 tasks"


def test_the_selecting_model_is_loaded_and_recorded(small: Small, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def score(completion):\n    return float(len(completion))\n")
    scored = f"dpo.selection={{kind: by_margin, reward: '{file}:score'}}"
    rewards = Problems(small(mpo(), *SHORT, scored)).rewards
    assert [list(map(Path, reward.fingerprint)) for reward in rewards if reward.fingerprint] == [[file]]
