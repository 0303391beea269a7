"""P3O on a tiny new model: several passes, clipped from the second one on; what is added for a prompt is not seen."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.components.objectives.p3o import P3O
from posttrain.methods.policy_gradient.p3o import ROWS, p3o
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

GRADED = "def score(completion, prompt):\n    return sum(map(ord, completion)) % 4 + {offset}\n"
BY_PROMPT = "64 * (sum(map(ord, prompt)) % 5)"


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["separate", "joint"])
def test_it_trains(small: Small, train: Train, tmp_path: Path, clip: str) -> None:
    recipe = small(p3o(), "lr=1e-2", f"rl.objective.clip={clip}")
    models, store = train(with_reward(recipe, tmp_path, GRADED.format(offset=0)))
    assert models["policy"].version == 3 * 4
    assert models["reference"].version == 0
    for entry in store.metrics():
        assert 0.0 < entry["clip_fraction"] < 1.0
        assert entry["ratio"] != pytest.approx(1.0, abs=1e-3), "the later passes are off policy"
    assert ROWS == (293,)


def test_a_pass_of_fresh_samples_is_not_clipped(small: Small, train: Train, tmp_path: Path) -> None:
    once = ("learner.epochs=1", "steps=1")
    _, store = train(with_reward(small(p3o(), *once), tmp_path, GRADED.format(offset=0)))
    (entry,) = store.metrics()
    assert entry["clip_fraction"] == 0.0
    assert entry["ratio"] == pytest.approx(1.0, abs=1e-4)
    assert entry["weight"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_what_is_added_for_a_prompt_is_not_seen(small: Small, train: Train, tmp_path: Path) -> None:
    """Whole runs, weight for weight: the rewards are small whole numbers, so that not a bit is lost."""
    changes = ("lr=1e-2", "penalties={}")
    plain, store = train(with_reward(small(p3o(), *changes), tmp_path, GRADED.format(offset=0)))
    shifted, moved = train(with_reward(small(p3o(), *changes), tmp_path, GRADED.format(offset=BY_PROMPT)))
    assert {row["reward"] for row in moved.rollouts(1)} != {row["reward"] for row in store.rollouts(1)}
    assert max(row["reward"] for row in moved.rollouts(1)) > 60
    for name, parameter in plain["policy"].named_parameters():
        torch.testing.assert_close(shifted["policy"].get_parameter(name), parameter, msg=name)


def test_its_parts() -> None:
    stage = rl_of(p3o())
    assert stage.objective == P3O()
    assert stage.roles == {"policy", "reference"}, "the divergence of the sampling policy is taken from the reward"
    assert not stage.filters, "a group of equal rewards has no gradient by itself"
