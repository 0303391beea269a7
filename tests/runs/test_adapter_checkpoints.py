"""A checkpoint of adapters holds them and names their base; it is resumed bit for bit, and with no other base."""

import json
import shutil
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.methods.sft_rl.sft import sft
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from posttrain.runs.measuring import context_for


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return new_folder(tmp_path / "base", layers=1, width=64, heads=2, kv_heads=1, context=64)


def begun(base: Path, runs: Path, steps: int) -> Path:
    """A run of four steps that was stopped after some, so that its checkpoint is of an earlier one."""
    changes = (
        f"model={base}",
        "models.policy.lora.rank=2",
        "threads=1",
        "tasks.size=40",
        "tasks.terms=[2, 2]",
        "evaluation.by=none",
        "batch=4",
        "max_steps=4",
        "lr=1e-2",
        "checkpoints.every_steps=2",
        "checkpoints.keep=9",
    )
    run, _ = start(override(sft(), list(changes)), runs, LiveView(lines=True))
    for name in ("summary.json", "report.html"):
        (run / name).unlink()
    for step in (3, 4):
        for folder in (run / "checkpoints").glob(f"step_{step:06d}_*"):
            if step > steps:
                shutil.rmtree(folder)
    return run


@pytest.mark.slow
def test_it_holds_the_adapters_and_names_their_base(base: Path, tmp_path: Path) -> None:
    run = begun(base, tmp_path / "runs", 2)
    kept = run / "checkpoints" / "step_000002_0" / "models" / "policy"
    assert (run / "model" / "model.safetensors").is_file(), "what the run leaves is a whole model"
    assert not (kept / "model.safetensors").exists() and (kept / "adapter_model.safetensors").is_file()
    assert json.loads((kept / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    sizes = [sum(f.stat().st_size for f in folder.rglob("*.safetensors")) for folder in (kept, base)]
    assert sizes[0] < sizes[1] / 4

    final = (run / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(run / "model")
    context = context_for(str(run), ("evaluation.by=answers", "evaluation.holdout=2"), None, None)
    assert set(context.first_models()) == {"policy"}, "an interrupted run can be evaluated"
    resume(run, LiveView(lines=True))
    assert (run / "model" / "model.safetensors").read_bytes() == final, "resumed bit for bit"


@pytest.mark.slow
def test_a_base_that_moved_or_changed_is_refused(base: Path, tmp_path: Path) -> None:
    run = begun(base, tmp_path / "runs", 2)
    weights = base / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    original = weights.read_bytes()
    weights.write_bytes(content)
    with pytest.raises(UserError, match=r"models.policy.source: the model in '.*base' changed since the run"):
        resume(run, LiveView(lines=True))
    weights.write_bytes(original)
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="base"):
        resume(run, LiveView(lines=True))
