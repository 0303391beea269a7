"""TOPR, in rounds and fully offline, on a tiny new model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.errors import UserError
from posttrain.methods.policy_gradient.topr import ROWS, topr
from posttrain.methods.policy_gradient.topr_offline import topr_offline
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.components.tasks.written import jsonl
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return 1.0 if sum(map(ord, completion)) % 2 else -1.0\n"
OFFLINE = (
    "tasks.tasks.size=60",
    "tasks.tasks.terms=[2, 2]",
    "evaluation.holdout=5",
    "evaluation.sampling.max_tokens=8",
)


@pytest.fixture
def offline(tiny_folder: Path) -> Callable[..., Recipe]:
    def make(*changes: str) -> Recipe:
        sizes = (f"model={tiny_folder}", "threads=1", "steps=3", "prompts=4", "lr=1e-2", *OFFLINE)
        return override(topr_offline(), [*sizes, *changes])

    return make


def test_many_updates_are_made_from_each_round(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(topr(), "lr=1e-2", "learner.minibatches=2"), tmp_path, VARIED))
    assert models["policy"].version == 3 * 2 * 2
    for step, entry in enumerate(store.metrics(), start=1):
        rewards = np.array([row["reward"] for row in store.rollouts(step)])
        assert entry["effective_positives"] == pytest.approx((rewards > 0).mean())
        assert entry["weight/positive"] == 1.0
        assert 0.0 < entry["weight/negative"] < 1.0, "the later updates of a round are off policy"


@pytest.mark.slow
def test_the_first_update_is_reinforce(small: Small, train: Train, tmp_path: Path) -> None:
    once = ("steps=1", "learner.epochs=1", "learner.minibatches=1")
    _, store = train(with_reward(small(topr(), *once), tmp_path, VARIED))
    losses = [-row["reward"] * sum(x for x in row["trained_logp"] if x is not None) for row in store.rollouts(1)]
    assert store.metrics()[0]["loss"] == pytest.approx(np.mean(losses) / 16, rel=1e-4)


def test_offline_nothing_is_sampled(offline: Callable[..., Recipe], train: Train) -> None:
    models, store = train(offline())
    assert models["policy"].version == 3
    assert models["behavior"].version == 0
    for step, entry in enumerate(store.metrics(), start=1):
        rows = store.rollouts(step)
        assert [row["reward"] for row in rows] == [1.0, -1.0] * 4
        assert (entry["recorded/reward"], entry["effective_positives"]) == (0.0, 0.5)
        assert "reward" not in entry and "solved" not in entry and "entropy" not in entry
        assert all("####" in row["completion"] for row in rows)
    assert store.metrics()[0]["weight/negative"] == pytest.approx(1.0, abs=1e-4)
    assert store.metrics()[2]["weight/negative"] < 0.9


def test_the_ratio_is_to_the_first_policy_however_late(offline: Callable[..., Recipe], train: Train) -> None:
    """A task that comes again has the log-probabilities of its first time."""
    _, store = train(offline("tasks.tasks.size=9", "evaluation.holdout=4"))
    seen: dict[tuple[str, int], list[list[float]]] = {}
    for step in (1, 2, 3):
        for row in store.rollouts(step):
            sampled = [x for x in row["sampled_logp"] if x is not None]
            seen.setdefault((row["task_key"], row["sample"]), []).append(sampled)
    again = [visits for visits in seen.values() if len(visits) > 1]
    assert len(again) >= 8
    for first, *later in again:
        for visit in later:
            assert visit == pytest.approx(first, abs=1e-4)


def test_a_divergence_from_the_writer_of_the_data(offline: Callable[..., Recipe], train: Train) -> None:
    """The role 'behavior' is a model like any other, whatever else is called so."""
    _, store = train(offline("penalties.kl={kind: kl, role: behavior}"))
    first, last = store.metrics()[0], store.metrics()[-1]
    assert first["kl/estimate"] == pytest.approx(0.0, abs=1e-6)
    assert last["kl/estimate"] > 1e-6
    said = [x for x in store.rollouts(1)[0]["behavior_logp"] if x is not None]
    assert said == pytest.approx([x for x in store.rollouts(1)[0]["sampled_logp"] if x is not None], abs=1e-5)


def test_data_of_ones_own(offline: Callable[..., Recipe], train: Train, tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}+1=", "response": str(n), "label": n % 3 == 0} for n in range(20)]
    file = jsonl(tmp_path / "mine.jsonl", rows)
    _, store = train(override(offline(), [f"tasks={file}", "evaluation.verifier=rating", "advantage.baseline=0.5"]))
    for row in store.rollouts(1):
        assert row["reward"] == float(int(row["completion"]) % 3 == 0)
        assert {x for x in row["advantage"] if x is not None} == {row["reward"] - 0.5}


def test_without_the_model_that_wrote_the_data(offline: Callable[..., Recipe]) -> None:
    import torch

    recipe = offline("rollout.role=author")
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="needs a model in the role 'author'"):
        context.check(context.first_models())
    assert ROWS == (99,)
