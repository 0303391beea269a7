"""The curriculum in a run: its reasons in the record, its tokens counted, its state after a cut, its pool."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.components.curricula import Curriculum
from posttrain.components.curricula.bandit import Bandit
from posttrain.components.curricula.predicted import Predicted
from posttrain.components.curricula.thompson import Thompson
from posttrain.components.curricula.uniform import Uniform
from posttrain.components.curricula.variance import Variance
from posttrain.errors import UserError
from posttrain.methods.curriculum.mopps import mopps
from posttrain.methods.curriculum.pcl import pcl
from posttrain.methods.curriculum.sec import sec
from posttrain.methods.curriculum.vas import vas
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from posttrain.stages.rl.choosing import check_pool, visits
from posttrain.types import Task
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return float(sum(map(ord, completion)) % 2)\n"


def test_weight_and_reason_are_in_the_record(small: Small, train: Train) -> None:
    _, store = train(small(mopps(arithmetic())))
    rows = store.rollouts(1)
    assert {json.loads(row["info"])["reason"] for row in rows} == {"Beta(1, 1), 0 visits"}
    weights = {row["task_key"]: json.loads(row["info"])["weight"] for row in rows}
    assert len(weights) == 3 and all(0.0 < weight < 1.0 for weight in weights.values())


def test_uniform_has_no_reason(small: Small, train: Train) -> None:
    _, store = train(small(arithmetic(), "steps=1"))
    assert all("reason" not in (row["info"] or "") for row in store.rollouts(1))


def test_one_category_is_a_note_of_the_run(small: Small, train: Train) -> None:
    _, store = train(small(sec(arithmetic()), "steps=1", "tasks.terms=[2,2]"))
    [note] = [entry["message"] for entry in store.events() if entry["kind"] == "note"]
    assert note.startswith("stage rl: curriculum bandit: all 55 tasks have the same category, '2 numbers'")


def test_tokens_of_measurements_are_counted_where_they_are_sampled(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(with_reward(vas(arithmetic()), tmp_path, VARIED), "curriculum.every=2", "curriculum.n=2")
    _, store = train(recipe)
    first, second, third = store.metrics()
    tasks = 55
    for entry, step in ((first, 1), (third, 3)):
        own = sum(sum(x is not None for x in row["sampled_logp"]) for row in store.rollouts(step))
        assert entry["sampled_tokens"] == own + entry["probe_tokens"]
        assert entry["probe_tokens"] >= 2 * tasks
    assert "probe_tokens" not in second
    assert second["curriculum/measured_variance"] == first["curriculum/measured_variance"]
    reasons = {json.loads(row["info"])["reason"] for row in store.rollouts(1)}
    assert reasons == {"variance", "uniform"}


@pytest.mark.slow
def test_the_value_model_learns_from_its_prompts_alone(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(with_reward(pcl(arithmetic()), tmp_path, "def score(completion):\n    return 1.0\n"), "steps=12")
    models, store = train(recipe)
    first, *_, last = store.metrics()
    assert first["probe_prompt_tokens"] > 0 and "probe_tokens" not in first
    assert last["difficulty/loss"] < first["difficulty/loss"], "every reward is 1"
    assert last["curriculum/predicted"] > first["curriculum/predicted"]
    assert models["difficulty"].version == models["policy"].version == 12


@pytest.mark.slow
@pytest.mark.parametrize(("method", "at"), [(vas, 2), (pcl, 2), (mopps, 2)])
def test_cut_off_between_two_measurements_is_uninterrupted(
    small: Small, train: Train, tmp_path: Path, method: Callable[..., Recipe], at: int
) -> None:
    changes = ["checkpoints.every_steps=1", "steps=4", *["curriculum.every=3"] * (method is vas)]
    recipe = small(with_reward(method(arithmetic()), tmp_path, VARIED), *changes)
    models, store = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=at)
    assert store.metrics() == resumed.metrics()
    assert [r["task_key"] for r in store.rollouts(4)] == [r["task_key"] for r in resumed.rollouts(4)]
    for role in models:
        for a, b in zip(models[role].parameters(), again[role].parameters(), strict=True):
            assert torch.equal(a, b)


def test_a_changed_pool_is_refused() -> None:
    tasks = [Task(key=f"t{i}", prompt="") for i in range(3)]
    memory: dict[str, object] = {}
    check_pool(memory, tasks, "rl")
    check_pool(memory, tasks, "rl")
    for other in (tasks[:2], tasks[::-1]):
        with pytest.raises(UserError, match=r"stage rl: there are \d tasks, and they are not the 3 .* has observed"):
            check_pool(memory, other, "rl")


@pytest.mark.parametrize(
    ("curriculum", "line"),
    [
        (Thompson(), "curriculum thompson: 200 choices among 100 tasks, 2 visits of each"),
        (Uniform(), None),
        (Bandit(), None),
        (Variance(), None),
        (Predicted(), None),
    ],
)
def test_visits(curriculum: Curriculum, line: str | None) -> None:
    assert visits(curriculum, 20, 10, 100) == [line] * (line is not None)


def test_less_than_one_visit_is_a_warning() -> None:
    [line] = visits(Thompson(), 2, 10, 100)
    assert "0.2 visits of each; below 1, most are chosen before anything is known of them" in line
