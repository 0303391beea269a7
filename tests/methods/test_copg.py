"""CoPG on fixed data: nothing is sampled, the reference stays, pairs of any size of group are found."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.components.objectives.copg import CoPG
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.copg import ROWS, copg
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.components.tasks.written import jsonl
from tests.stages.conftest import with_reward

Train = Callable[[Recipe], tuple[Models, RunStore]]
Make = Callable[..., Recipe]

SIZES = ("threads=1", "steps=3", "prompts=4", "lr=1e-2", "evaluation.holdout=5", "evaluation.sampling.max_tokens=8")


@pytest.fixture
def offline(tiny_folder: Path) -> Make:
    def make(*changes: str) -> Recipe:
        data = ("tasks.tasks.size=60", "tasks.tasks.terms=[2, 2]")
        return override(copg(), [f"model={tiny_folder}", *SIZES, *data, *changes])

    return make


def test_it_trains(offline: Make, train: Train) -> None:
    models, store = train(offline())
    assert (models["policy"].version, models["reference"].version) == (3, 0)
    first, *later = store.metrics()
    assert first["loss"] == pytest.approx(2.0**2 / (2 * 0.06), rel=1e-4), (
        "the policy is the reference: 2 x 2 / (2 beta)"
    )
    assert first["pair_residual"] == pytest.approx(2.0, abs=1e-4)
    assert first["pair_margin"] == pytest.approx(0.0, abs=1e-3)
    assert all(abs(entry["pair_margin"]) > 1e-2 for entry in later)
    for step in (1, 2, 3):
        assert [row["reward"] for row in store.rollouts(step)] == [1.0, -1.0] * 4
        assert {x for row in store.rollouts(step) for x in row["advantage"] if x is not None} == {1.0, -1.0}
    assert ROWS == (212,)


@pytest.mark.slow
def test_the_chosen_completions_become_likelier_than_the_rejected_ones(offline: Make, train: Train) -> None:
    """Of the data that it learns from, over and over, up to the margin that is aimed at."""
    _, store = train(offline("tasks.tasks.size=9", "evaluation.holdout=5", "steps=40", "rl.objective.beta=0.5"))
    margins = [entry["pair_margin"] for entry in store.metrics()]
    assert margins[-1] > margins[0] + 1.0
    assert store.metrics()[-1]["pair_residual"] < 0.75 * store.metrics()[0]["pair_residual"]


def test_the_data_may_have_any_number_of_completions(offline: Make, train: Train, tmp_path: Path) -> None:
    """Three of a prompt are three pairs; a prompt with one teaches nothing, and is no error."""
    rows = [
        {"prompt": f"{n}+1=", "response": str(n + more), "reward": rating}
        for n in range(20)
        for more, rating in ((1, 1.0), (2, 0.25), (3, -0.5))[: 3 if n % 4 else 1]
    ]
    file = jsonl(tmp_path / "mine.jsonl", rows)
    changes = ["evaluation.verifier=rating", "steps=1", "prompts=12"]
    context = RunContext(override(offline(*changes), [f"tasks={file}"]), torch.device("cpu"))
    with pytest.raises(UserError, match="kind: gathered"):
        context.check(context.first_models())
    _, store = train(override(offline(*changes), [f"tasks={{kind: gathered, tasks: {file}}}"]))
    gaps = (0.75, 0.75, 1.5)
    sizes = [len(rows) for rows in by_task(store.rollouts(1)).values()]
    assert set(sizes) == {1, 3}
    assert store.metrics()[0]["pair_residual"] == pytest.approx(sum(gaps) / 3, abs=1e-3)
    one_group = sum(gap**2 / (2 * 0.06) for gap in gaps) / 3
    assert store.metrics()[0]["loss"] == pytest.approx(3 * sizes.count(3) * one_group / sum(sizes), rel=1e-3)


def by_task(rows: list[dict[str, object]]) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        found.setdefault(str(row["task_key"]), []).append(row)
    return found


def test_it_learns_from_fresh_samples_too(small: Make, train: Train, tmp_path: Path) -> None:
    changes = ["rl.rollout={kind: independent, n: 4, sampling: {max_tokens: 8}}", "tasks={kind: arithmetic, size: 60}"]
    recipe = small(override(copg(), changes), "lr=1e-2")
    graded = "def score(completion):\n    return sum(map(ord, completion)) % 3 / 2\n"
    models, store = train(with_reward(recipe, tmp_path, graded))
    assert models["policy"].version == 3
    assert all(entry["loss"] > 0 for entry in store.metrics())
    assert all("recorded/reward" not in entry and "reward" in entry for entry in store.metrics())


def test_its_parts() -> None:
    stage = rl_of(copg())
    assert stage.objective == CoPG(beta=0.06)
    assert stage.roles == {"policy", "reference"}
    assert not stage.penalties, "the divergence is in the loss of a pair"
