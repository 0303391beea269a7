"""The temperature for an entropy: by bisection on fixed logits, between samples, and of a tiny model."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cli import main
from posttrain.cli.diagnose import _own_tasks
from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.temperature import Temperature, crossing, temperature_for
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe, to_yaml

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [5.0, 1.0, 0.0]], dtype=torch.float64)


def entropy(temperature: float) -> float:
    logp = (LOGITS / temperature).log_softmax(-1)
    return float(-(logp.exp() * logp).sum(-1).mean())


@pytest.mark.parametrize("target", [0.05, 0.3, 0.9])
def test_bisection_hits_the_entropy_of_fixed_logits(target: float) -> None:
    found = temperature_for(entropy, target)
    assert found is not None and entropy(found) == pytest.approx(target, abs=0.01)


def test_a_target_out_of_range_has_no_temperature() -> None:
    assert temperature_for(entropy, math.log(3) + 0.1) is None


def test_the_curve_of_own_samples_is_looked_up_where_it_first_crosses() -> None:
    """It need not rise: from .15 to .13 it crosses .14 on its way down, halfway from 1 to 1.3."""
    assert crossing([(1.0, 0.15), (1.3, 0.13), (2.0, 0.2)], 0.14) == pytest.approx(1.15)
    assert crossing([(1.0, 0.15), (1.3, 0.13)], 0.3) is None
    assert crossing([(1.0, 0.3), (1.3, 0.3)], 0.3) == 1.0
    assert crossing([], 0.3) is None


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=64)
    return Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )


def test_a_model(subject: Subject) -> None:
    diagnostic = Temperature(tasks=Arithmetic(size=4), grid=(0.5, 1.0), prompts=3, max_tokens=5, entropy=3.0)
    values: Any = diagnostic.examine(subject).values
    low, high = (row["entropy"] for row in values["curve"])
    assert values["tasks"] == 3 and 0 < low < high < math.log(300)
    assert diagnostic.examine(subject).values == values
    fixed = values["temperature_on_fixed_text"]
    policy = subject.load()
    written = diagnostic._written(subject.serve(policy), Arithmetic(size=4).load()[:3])
    assert diagnostic._of(policy, written, fixed) == pytest.approx(3.0, abs=0.01)


def test_a_grid_that_does_not_rise_is_refused(subject: Subject) -> None:
    with pytest.raises(UserError, match="temperatures must rise"):
        Temperature(tasks=Arithmetic(size=4), grid=(1.0, 0.5)).examine(subject)


def test_without_tasks_those_of_the_run_are_taken_or_those_of_grpo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As `posttrain eval` takes them."""
    monkeypatch.chdir(tmp_path)
    new_folder(Path("tiny"), layers=1, width=16, heads=2, kv_heads=1, context=128)
    small = ["grid=[0.5, 1]", "prompts=2", "n=1", "max_tokens=2", "--json"]
    assert main(["diagnose", "temperature", "tiny", *small]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["tasks"] == 2
    assert captured.err.startswith("tasks of grpo: {kind: arithmetic, size: 2000,")
    run = Path("run")
    run.mkdir()
    (run / "recipe.yaml").write_text(to_yaml(find_recipe("grpo", ["model=tiny", "tasks.size=7"])))
    assert _own_tasks("temperature", [], ["run"])["tasks"].size == 7
    assert _own_tasks("temperature", ["tasks=mine.jsonl"], ["run"]) == {}
    assert _own_tasks("sparsity", [], ["run"]) == {}
