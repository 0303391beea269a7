"""Keeping the weights of the step with the best validation."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.errors import UserError
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.one_problem import one_problem
from posttrain.stages import Models
from tests.stages.resuming import cut_off_and_resumed

Train = Callable[[Recipe], tuple[Models, RunStore]]

RISES = "def score(completion):\n    return float(len(set(completion)))\n"


def small(folder: Path, tmp_path: Path, *changes: str, reward: str = RISES) -> Recipe:
    path = tmp_path / "reward_for_test.py"
    path.write_text(reward)
    sizes = ("sft.best.tasks.size=4", "sft.best.max_tokens=8", "sft.best.every=2", f"sft.best.reward={path}:score")
    more = ("evaluation.tasks.size=6", "sft.max_steps=7", "sft.batch=2", "lr=1e-2", "threads=1", f"model={folder}")
    return override(one_problem(), [*sizes, *more, *changes])


def weights(models: Models) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in models["policy"].parameters()]


@pytest.mark.slow
def test_the_model_is_that_of_the_best_step(tiny_folder: Path, tmp_path: Path, train: Train) -> None:
    models, store = train(small(tiny_folder, tmp_path))
    validated = {
        step: entry["validation"] for step, entry in enumerate(store.metrics(), start=1) if "validation" in entry
    }
    assert list(validated) == [2, 4, 6, 7], "every other step, and the last"
    best = max(validated, key=lambda step: (validated[step], -step))
    assert store.metrics()[-1]["validation/step"] == best
    assert store.metrics()[-1]["validation/best"] == validated[best]
    alone, _ = train(small(tiny_folder, tmp_path, f"sft.max_steps={best}", "sft.best=null"))
    assert all(torch.equal(a, b) for a, b in zip(weights(models), weights(alone), strict=True))


@pytest.mark.slow
def test_the_first_of_equals(tiny_folder: Path, tmp_path: Path, train: Train) -> None:
    models, store = train(small(tiny_folder, tmp_path, reward="def score(completion):\n    return 0.5\n"))
    assert store.metrics()[-1]["validation/step"] == 2
    alone, _ = train(small(tiny_folder, tmp_path, "sft.max_steps=2", "sft.best=null"))
    assert all(torch.equal(a, b) for a, b in zip(weights(models), weights(alone), strict=True))


def test_without_a_score_there_is_no_best(tiny_folder: Path, tmp_path: Path, train: Train) -> None:
    failing = "def score(completion):\n    raise ValueError('no')\n"
    with pytest.raises(UserError, match="no answer of the validation could be scored"):
        train(small(tiny_folder, tmp_path, reward=failing))


def test_the_role_must_be_there(tiny_folder: Path, tmp_path: Path, train: Train) -> None:
    with pytest.raises(UserError, match=r"needs a model in the role .finest."):
        train(small(tiny_folder, tmp_path, "sft.best.role=finest"))


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 7])
def test_resumes_to_the_bit_after_the_best_step(tiny_folder: Path, tmp_path: Path, train: Train, at: int) -> None:
    falls = "def score(completion, task):\n    return -float(len(set(completion)))\n"
    recipe = small(tiny_folder, tmp_path, "checkpoints.every_steps=1", reward=falls)
    models, store = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "again", at=at)
    assert all(torch.equal(a, b) for a, b in zip(weights(models), weights(again), strict=True))
    ours, theirs = ([entry.get("validation/best") for entry in own.metrics()] for own in (store, resumed))
    assert ours == theirs
