"""KDRL: a teacher is made, then GRPO and distillation learn from the same rollouts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.kdrl import ROWS, kdrl
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from posttrain.stages.rl import RL
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return (sum(map(ord, completion)) % 5) / 4\n"
EQUAL = "def score(completion):\n    return 0.5\n"
SHORT = ("teacher.max_steps=2",)


def losses(store: RunStore) -> list[float]:
    return [entry["loss"] for entry in store.metrics() if entry["stage"] == "rl"]


def test_the_teacher_is_made_once_and_then_left_alone(
    small: Small, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: dict[str, Mapping[str, Any]] = {}
    run = RL.run

    def watched(self: RL, models: Models, stage_run: Any) -> Models:
        begun.update({r: {n: p.detach().clone() for n, p in m.named_parameters()} for r, m in models.items()})
        return run(self, models, stage_run)

    monkeypatch.setattr(RL, "run", watched)
    models, store = train(with_reward(small(kdrl(), *SHORT), tmp_path, VARIED))
    assert any(not torch.equal(begun["policy"][n], p) for n, p in begun["teacher"].items())
    assert all(torch.equal(begun["teacher"][n], p) for n, p in models["teacher"].named_parameters())
    assert any(not torch.equal(begun["policy"][n], p) for n, p in models["policy"].named_parameters())
    steps = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert all(entry["kl/estimate"] > 0 for entry in steps)
    assert {column for row in store.rollouts(3) for column in row} >= {"advantage", "teacher_logp"}
    assert ROWS == (132,)


@pytest.mark.slow
def test_without_its_weight_it_is_grpo(small: Small, train: Train, tmp_path: Path) -> None:
    nothing = ("penalties.kl.coefficient=0", "penalties.kl.final=0")
    joined = with_reward(small(kdrl(), *SHORT, *nothing), tmp_path, VARIED)
    bare = override(joined, ["penalties={}"])
    assert rl_of(bare).objective == rl_of(grpo()).objective
    assert losses(train(joined)[1]) == pytest.approx(losses(train(bare)[1]), abs=1e-7)


@pytest.mark.slow
def test_without_rewards_it_is_distillation(small: Small, train: Train, tmp_path: Path) -> None:
    """Equal rewards teach nothing; the student still comes closer to the teacher."""
    teacher = ("teacher.learner.optimizer.lr=1e-2", "teacher.learner.schedule=constant", "teacher.max_steps=10")
    student = ("steps=20", "penalties.kl.coefficient=1", "penalties.kl.final=null", "rl.learner.optimizer.lr=1e-2")
    _, store = train(with_reward(small(kdrl(), *teacher, *student), tmp_path, EQUAL))
    divergence = [entry["kl/teacher"] for entry in store.metrics() if entry["stage"] == "rl"]
    assert sum(divergence[-3:]) < 0.5 * sum(divergence[:3]), divergence


def test_the_schedule_of_the_paper() -> None:
    """5e-3 falls by 5e-5 a step for 80 of 280 steps."""
    pull = rl_of(kdrl()).penalties["kl"]
    assert (pull.coefficient, pull.final, pull.form, pull.role) == (5e-3, 1e-3, "k2", "teacher")  # type: ignore[attr-defined]
    assert pull.until == pytest.approx(80 / 280, abs=0.02)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_kinds_of_failures_that_are_distilled(small: Small, train: Train, tmp_path: Path) -> None:
    """Every rollout is correct, so nothing is left to distill when only failures count."""
    always = "def score(completion):\n    return 1.0\n"
    shares = {}
    for subset in ("all", "wrong", "unsolved"):
        recipe = small(kdrl(), *SHORT, f"penalties.kl.rollouts={subset}")
        shares[subset] = losses(train(with_reward(recipe, tmp_path, always))[1])
    assert all(loss > 0 for loss in shares["all"])
    assert not any(shares["wrong"]) and not any(shares["unsolved"])


def test_a_teacher_that_is_there_is_kept() -> None:
    mine = with_models(arithmetic(), {"teacher": Model(source="pebble")})
    assert kdrl(mine).models == mine.models
    assert list(kdrl(mine).stages) == ["rl"]
