"""Moments that go on from stage to stage: they are in checkpoints, and refused where they are of others."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.optimizers.muon import Muon
from posttrain.errors import Interrupted, UserError
from posttrain.methods.sft_rl.sft import sft
from posttrain.policies.folder import new_folder
from posttrain.recipes.changes import sft_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from posttrain.runs.moments import EARLIER, Moments
from posttrain.runs.run import StageRun
from posttrain.stages.record import StepRecord


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)


def recipe(tiny: Path, *carried: bool, steps: int = 3) -> Recipe:
    """A stage of imitation, then one for each that carries moments or not."""
    base = override(sft(), [f"model={tiny}", "tasks.size=40", "evaluation.by=none", "threads=1", "batch=8"])
    stage = replace(sft_of(base), max_steps=steps)
    stage = replace(stage, learner=replace(stage.learner, optimizer=AdamW(lr=1e-2)))
    more = {f"more_{i}": replace(stage, learner=replace(stage.learner, carried=c)) for i, c in enumerate(carried)}
    return replace(base, stages={"first": stage, **more})


def weights(folder: Path) -> Mapping[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def run(made: Recipe, root: Path) -> Mapping[str, torch.Tensor]:
    return weights(start(made, root, LiveView(json=True))[0])


def same(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_carried_moments_change_what_is_learned(tiny: Path, tmp_path: Path) -> None:
    new, carried = run(recipe(tiny, False), tmp_path / "a"), run(recipe(tiny, True), tmp_path / "b")
    assert not same(new, carried)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [3, 4, 6])
def test_a_run_that_stopped_between_stages_goes_on_bit_for_bit(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    made = override(recipe(tiny, True, True), ["checkpoints.every_steps=1"])
    whole = run(made, tmp_path / "whole")
    finish: Callable[..., None] = StageRun.finish_step

    def stopped(self: StageRun, steps_done: int, record: StepRecord, *more: Any) -> None:
        if self._run.step == kill:
            raise Interrupted("killed")
        finish(self, steps_done, record, *more)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(StageRun, "finish_step", stopped)
        start(made, tmp_path / "cut", LiveView(json=True))
    [cut] = (tmp_path / "cut").iterdir()
    resume(cut, LiveView(json=True))
    assert same(whole, weights(cut))


def test_what_is_not_needed_is_not_kept(tiny: Path) -> None:
    stages = recipe(tiny, True, False).stages
    found = {"policy" + EARLIER: ({"optimizer": "adamw"}, {})}
    moments = Moments(stages, found)  # type: ignore[arg-type]
    assert moments.states(0) == moments.states(1) == found and moments.states(2) == {}
    assert Moments(recipe(tiny, False).stages, {}).states(0) == {}


@pytest.mark.slow
def test_moments_of_nothing_are_refused(tiny: Path, tmp_path: Path) -> None:
    made = recipe(tiny, True)
    alone = replace(made, stages={"more_0": made.stages["more_0"]})
    with pytest.raises(UserError, match="carried: no stage before it trains with the optimizer 'adamw'"):
        start(alone, tmp_path, LiveView(json=True))
    first = made.stages["first"]
    other = replace(first, learner=replace(first.learner, optimizer=Muon()))  # type: ignore[attr-defined, call-arg]
    with pytest.raises(UserError, match="no stage before it"):
        start(replace(made, stages={"first": other, "more_0": made.stages["more_0"]}), tmp_path, LiveView(json=True))
    stages = {"first": first, "other": other, "more_0": made.stages["more_0"]}
    with pytest.raises(UserError, match="its last one has 'muon'"):
        start(replace(made, stages=stages), tmp_path, LiveView(json=True))
