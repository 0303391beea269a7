"""Kimi k1.5: a squared surrogate, optimizer resets, a length reward, hard tasks; on a tiny new model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.rewards.match import Match
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.kimi_k1_5 import ROWS, kimi_k1_5
from posttrain.recipes.changes import rl_of
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.training.learner import Learner
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return float(sum(map(ord, completion)) % 2)\n"


def varied(recipe: Recipe, folder: Path) -> Recipe:
    """With a judge of answers that is right about half of the time, in its place in the reward."""
    path = folder / "varied.py"
    path.write_text(VARIED)
    return override(recipe, [f"reward.correct={path}:score"])


def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    """A step has four updates. The first is at the policy that sampled; the log-ratio of later ones is not 0."""
    models, store = train(varied(small(kimi_k1_5(), "lr=1e-2"), tmp_path))
    assert models["policy"].version == 3 * 4
    for entry in store.metrics():
        assert entry["log_ratio"] != 0.0
        assert {"reward/correct", "reward/brevity"} <= entry.keys()
    assert ROWS == (236,)


def test_it_is_grpo_with_these_parts_changed() -> None:
    assert {d.path for d in differences(grpo(), kimi_k1_5())} == {
        "curriculum",
        "rollout",
        "reward",
        "advantage.scale",
        "objective",
        "reducer",
        "filters.zero_variance",
        "learner.minibatches",
        "hooks.optimizer",
        "evaluation.verifier",
    }


@pytest.mark.slow
def test_the_first_update_is_that_of_dr_grpo(small: Small, train: Train, tmp_path: Path) -> None:
    """Without a length reward, and from the same tasks: at a log-ratio of 0 nothing is held back, whatever tau is."""
    once = ("steps=1", "learner.minibatches=1")
    ours = varied(small(kimi_k1_5(), *once, "reward.weight=0", "curriculum=uniform", "objective.tau=10"), tmp_path)
    theirs = with_reward(small(dr_grpo(), *once, "filters={}"), tmp_path, VARIED)
    norms = [train(recipe)[1].metrics()[0]["gradient_norm"] for recipe in (ours, theirs)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    assert norms[0] > 1e-3


def test_every_iteration_starts_with_a_reset_optimizer(
    small: Small, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[tuple[int, int]] = []
    step = Learner.step

    def watched(self: Learner, *args: Any, **named: Any) -> Any:
        before = sum(len(optimizer.state) for optimizer in self.optimizers)
        learned = step(self, *args, **named)
        remembered.append((before, sum(len(optimizer.state) for optimizer in self.optimizers)))
        return learned

    monkeypatch.setattr(Learner, "step", watched)
    train(varied(small(kimi_k1_5()), tmp_path))
    assert [before for before, _ in remembered] == [0, 0, 0]
    assert all(after > 0 for _, after in remembered)


def test_the_length_reward_waits(small: Small, train: Train, tmp_path: Path) -> None:
    """Of four steps, which begin at 0, 25, 50 and 75 % of the stage, the first two are before 30 %."""
    long = ("steps=4", "prompts=2", "rollout.n=16", "rollout.sampling.max_tokens=32")
    _, store = train(varied(small(kimi_k1_5(), *long), tmp_path))
    for step in (1, 2, 3, 4):
        rows = store.rollouts(step)
        plain = [row["reward"] in (0.0, 1.0) for row in rows]
        assert all(plain) if step <= 2 else not all(plain)
        by_task: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_task.setdefault(row["task_key"], []).append(row)
        for rollouts in by_task.values() if step > 2 else ():
            lengths = [sum(x is not None for x in row["trained_logp"]) for row in rollouts]
            for row, length in zip(rollouts, lengths, strict=True):
                right = row["score_status"] == "ok"
                if length == min(lengths) < max(lengths):
                    assert row["reward"] == pytest.approx(1.25 if right else 0.0)
                if length == max(lengths) > min(lengths):
                    assert row["reward"] == pytest.approx(0.75 if right else -0.25)


@pytest.mark.slow
def test_it_resumes_bit_for_bit(small: Small, train: Train, tmp_path: Path) -> None:
    """The success of tasks, and that an optimizer remembers nothing, are in the checkpoint."""
    recipe = varied(small(kimi_k1_5(), "checkpoints.every_steps=1", "lr=1e-2"), tmp_path)
    whole, first = train(recipe)
    again, second = cut_off_and_resumed(recipe, tmp_path / "again", at=2)
    assert first.metrics() == second.metrics()
    assert [row["task_key"] for row in first.rollouts(3)] == [row["task_key"] for row in second.rollouts(3)]
    for (name, a), b in zip(whole["policy"].state_dict().items(), again["policy"].state_dict().values(), strict=True):
        assert a.equal(b), name


def test_the_held_out_answers_are_scored_without_the_length() -> None:
    assert kimi_k1_5().evaluation.verifier == rl_of(grpo()).reward == Match()
    other = override(grpo(), ["reward.right=2"])
    assert kimi_k1_5(other).evaluation.verifier == Match(right=2.0)
