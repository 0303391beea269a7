"""Memories, late labels and learned weights go on to the bit where a run is cut off after they have come to something.

The law of all methods takes two steps, in which no late label arrives and no memory is read; these take five.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.advantages.constrained import Constrained
from posttrain.components.advantages.mixed import Mixed
from posttrain.components.rewards.captions import Captions
from posttrain.components.rewards.episodic_memory import EpisodicMemory
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.policies.folder import new_folder
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from tests.conformance.test_methods import by_default, made_small, run
from tests.stages.resuming import cut_off_and_resumed

STEPS = 5
OFTEN, SELDOM = Regex(pattern="[a-m]"), Regex(pattern="[n-z]")
"""What a model with random weights sometimes writes."""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


def changed(name: str, tiny: Path, **settings: Any) -> Recipe:
    recipe = made_small(by_default(name), tiny)
    stage = replace(rl_of(recipe), steps=STEPS, **settings)
    return replace(recipe, stages={"rl": stage})


def late_labels(tiny: Path) -> Recipe:
    """Labels that arrive two steps after their request; all are wrong, so that useless captions are rewarded."""
    reward = rl_of(by_default("oni")).reward
    assert isinstance(reward, Captions)
    return changed("oni", tiny, reward=replace(reward, delay=2, noise=1.0))


def memory(tiny: Path) -> Recipe:
    return changed("memory_r_plus", tiny, reward=EpisodicMemory(of=OFTEN, warm_up=1))


PARTS = Sum(parts={"often": OFTEN, "seldom": SELDOM}, weights={"seldom": 0.0})


def constrained(tiny: Path) -> Recipe:
    return changed("grpo", tiny, reward=PARTS, advantage=Constrained(at_most={"seldom": 0.1}, rate=0.1), filters={})


def mixed(tiny: Path) -> Recipe:
    return changed("grpo", tiny, reward=PARTS, advantage=Mixed(primary="often", weights={"seldom": 0.5}), filters={})


CASES: dict[str, tuple[Callable[[Path], Recipe], str]] = {
    "late labels": (late_labels, "captions"),
    "memories": (memory, "exploit"),
    "weights of constraints": (constrained, "weight/seldom"),
    "weights of a mixture": (mixed, "weight/seldom"),
}
"""The recipe, and the part of scores or the metric that the state decides."""


@pytest.mark.parametrize("name", CASES)
def test_goes_on_to_the_bit(name: str, tiny: Path, tmp_path: Path) -> None:
    make, decided = CASES[name]
    recipe = make(tiny)
    models, whole = run(recipe, tmp_path / "whole")
    steps = [row for row in whole.metrics() if "rollouts" in row or "reward" in str(row)]
    numbers = [row[key] for row in steps for key in row if key.endswith(decided) and row[key] is not None]
    assert len({round(number, 9) for number in numbers}) > 1, "it is in use"
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=len(whole.metrics()))
    assert again.metrics() == whole.metrics()
    for step in whole.rollout_steps():
        assert again.rollouts(step) == whole.rollouts(step)
    for parameter, tensor in models["policy"].state_dict().items():
        assert torch.equal(tensor, resumed["policy"].state_dict()[parameter]), parameter
