"""OREO offline on a tiny new model: what is learned from, in which order, and the search that the critic leads."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.objectives.path_consistency import PathConsistency
from posttrain.components.search.beam import Beam
from posttrain.methods.policy_gradient.oreo import ROWS, oreo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import OLD_LOGP, OLD_VALUE, logp_of
from posttrain.stages import Models
from tests.components.tasks.written import jsonl

Train = Callable[[Recipe], tuple[Models, RunStore]]
Made = Callable[..., Recipe]


@pytest.fixture
def tiny(tiny_folder: Path) -> Made:
    def make(*changes: str) -> Recipe:
        sizes = ("steps=3", "prompts=4", "lr=1e-2", "critic_learner.optimizer.lr=1e-2", "evaluation.holdout=5")
        data = ("tasks.tasks.size=60", "tasks.tasks.terms=[2, 2]", "evaluation.sampling.max_tokens=8")
        search = ("evaluation.search.sampling.max_tokens=8",)
        return override(oreo(), [f"model={tiny_folder}", "threads=1", *sizes, *data, *search, *changes])

    return make


def test_it_trains(tiny: Made, train: Train) -> None:
    """Offline: rated answers of both kinds, both models updated once a step, held-out answers by search as well."""
    models, store = train(tiny())
    versions = {role: model.version for role, model in models.items()}
    assert versions == {"policy": 3, "critic": 3, "reference": 0}
    for step, entry in enumerate(store.metrics(), start=1):
        assert [row["reward"] for row in store.rollouts(step)] == [1.0, 0.0] * 4
        assert "reward" not in entry and "entropy" not in entry, "nothing is sampled"
        assert entry["kl/nats"] >= 0.0
    evaluations = store.evaluations()
    assert evaluations[-1]["searched"]["tasks"] == 5
    assert evaluations[-1]["searched"]["lines"] >= 9
    assert ROWS == (276,)


def test_the_first_step_by_hand(tiny: Made, train: Train) -> None:
    """The policy is the reference and the critic returns 0, so the reward is missing: half the answers miss 1."""
    _, store = train(tiny("steps=1"))
    (entry,) = store.metrics()
    assert (entry["loss"], entry["critic/loss"]) == pytest.approx((0.5, 0.5), abs=1e-6)
    assert entry["residual"] == pytest.approx(entry["critic/residual"], abs=1e-6)
    for row in store.rollouts(1):
        assert {x for x in row["advantage"] if x is not None} == {row["reward"]}


def test_the_policy_learns_by_the_values_from_before_the_critics_update(tiny: Made, train: Train) -> None:
    """The critic alone moves in the first step; the second step's advantages are reward minus what it returns then."""
    models, store = train(tiny("learner.optimizer.lr=1e-30", "steps=2"))
    assert models["critic"].version == 2
    second = store.rollouts(2)
    said = np.concatenate([[x for x in row["value"] if x is not None] for row in second])
    given = np.concatenate([[row["reward"] - x for x in row["advantage"] if x is not None] for row in second])
    np.testing.assert_allclose(said, given, atol=1e-6)
    assert np.abs(said).min() > 0.0
    # Neither has the policy moved: both sides miss the same, to the last step's loss.
    last = store.metrics()[-1]
    assert last["residual"] == pytest.approx(last["critic/residual"], abs=1e-5)
    assert last["loss"] == pytest.approx(last["critic/loss"], abs=1e-5)


@pytest.mark.parametrize("changes", [("turn", 'rollout.delimiter="\\n"'), ("sequence",)])
def test_by_lines_or_by_responses(tiny: Made, train: Train, changes: tuple[str, ...]) -> None:
    """Right and wrong answers have as many states then, two lines or one response, though not as many tokens."""
    states, *more = changes
    models, store = train(tiny(f"objective.states={states}", f"critic.states={states}", *more))
    assert (models["policy"].version, models["critic"].version) == (3, 3)
    first, *_, last = store.metrics()
    assert first["residual"] == first["critic/residual"] == pytest.approx(0.5, abs=1e-6)
    assert last["critic/loss"] != first["critic/loss"]


def test_only_incorrect_answers_train_too(tiny: Made, train: Train, tmp_path: Path) -> None:
    """Unpaired data with no reward at all: nothing is missing where values are 0 and the policy is the reference."""
    rows = [{"prompt": f"{n}+1=", "response": str(n), "rating": 0.0} for n in range(20)]
    file = jsonl(tmp_path / "wrong.jsonl", rows)
    _, store = train(override(tiny("steps=1"), [f"tasks={file}", "evaluation.verifier=rating"]))
    (entry,) = store.metrics()
    assert (entry["loss"], entry["critic/loss"]) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert [row["reward"] for row in store.rollouts(1)] == [0.0] * 4


def test_both_sides_have_one_loss() -> None:
    stage = rl_of(oreo())
    assert stage.objective == PathConsistency() and stage.critic == PathConsistency(learns="value")
    assert stage.needs >= {OLD_LOGP, OLD_VALUE, logp_of("reference")}
    assert stage.learner == stage.critic_learner
    assert isinstance(oreo().evaluation.search, Beam)
