"""The estimate of a run's memory, what is there, and the refusal of a run that cannot fit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs import estimate as estimates
from posttrain.runs.estimate import Estimate, estimate
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.machine_memory import Available, available_memory
from posttrain.runs.preview import preview
from posttrain.runs.store import RunStore
from posttrain.stages import rl
from tests.builders import task

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    """A root folder with these files of the system."""
    meminfo = "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\nSwapFree: 1048576 kB\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_free_memory_and_swap_where_no_group_limits_it(tmp_path: Path) -> None:
    found = available_memory(machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}))
    assert found == Available(bytes=9 * GIB, limit="free memory of the machine")
    assert available_memory(tmp_path / "elsewhere") is None


def test_the_limit_of_a_group_of_version_2_or_of_one_around_it(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/system/job"
    files = {
        "proc/self/cgroup": "0::/system/job\n",
        f"{group}/memory.max": "max\n",
        "sys/fs/cgroup/system/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/system/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/system/memory.stat": f"anon 5\ninactive_file {GIB}\n",
    }
    found = available_memory(machine(tmp_path, files))
    assert found == Available(bytes=2 * GIB, limit="limit of the control group /system")


def test_the_limit_of_a_group_of_version_1_whose_path_is_that_outside_the_container(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/\n4:memory:/docker/abc\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
    }
    found = available_memory(machine(tmp_path, files))
    assert found is not None and found.bytes == GIB


def test_weights_gradients_and_optimizer_by_type_and_adapter(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "model", layers=2, width=64)
    plain = estimate(find_recipe("grpo", [f"model={folder}"]), 10, {})
    weights = plain.parts["weights"]
    stored = (folder / "model.safetensors").stat().st_size
    assert 0.9 * stored < weights <= stored
    assert (plain.parts["gradients"], plain.parts["optimizer"]) == (weights, 2 * weights)
    half = estimate(find_recipe("grpo", [f"model={folder}", "models.policy.dtype=bfloat16"]), 10, {})
    assert half.parts["weights"] == weights // 2
    assert half.parts["optimizer"] == 3 * weights, "masters of float32 are beside the moments"
    lora = estimate(find_recipe("grpo", [f"model={folder}", "models.policy.lora={rank: 1}"]), 10, {})
    assert lora.parts["gradients"] < weights / 10
    copied = estimate(find_recipe("dpo", [f"model={folder}"]), 10, {})
    assert copied.parts["weights"] == 2 * weights, "the reference is a copy"


def test_a_prompt_is_computed_once_with_all_its_completions(tmp_path: Path) -> None:
    """Prompts of 10 and 30 bytes: 20 + 2 * 10 / 4 on average for 16 of them, and one. With 4 completions of 32 tokens
    each a step has 16 (26 + 4 * 32) tokens; 4 completions more add 16 * 4 * 32.
    """
    folder = new_folder(tmp_path / "model", layers=1, width=16, heads=2)
    tasks = {"rl": [task("a", "a" * 10), task("b", "b" * 30)]}
    kept = []
    for n in (4, 8):
        size = [f"model={folder}", "prompts=16", f"rollout.n={n}", "rollout.sampling.max_tokens=32"]
        kept.append(estimate(find_recipe("grpo", size), 0, tasks).parts["activations"])
    assert kept[0] * 4 * 32 == (kept[1] - kept[0]) * (26 + 4 * 32)


def test_a_model_that_cannot_fit_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    little = Available(bytes=1 << 20, limit="limit of the control group /job")
    monkeypatch.setattr(estimates, "available_memory", lambda: little)
    monkeypatch.setattr("posttrain.policies.loading.load_policy", lambda *_: pytest.fail("it was loaded"))
    assert main(["run", "grpo"]) == 2
    said = capfd.readouterr().err
    assert "weights 3 MiB, gradients 3 MiB, optimizer 6 MiB" in said
    assert "limit of the control group /job" in said and "models.policy.lora={}" in said
    assert not (tmp_path / "runs").exists()


def test_what_may_not_fit_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "available_memory", lambda: Available(bytes=100 << 20, limit="a test"))
    small = ["steps=1", "prompts=1", "rollout.n=2", "evaluation.holdout=2", "filters={}", "alarms={}"]
    folder, _ = start(find_recipe("grpo", small), tmp_path, LiveView(lines=True, json=True))
    with RunStore.open(folder, reading=True) as store:
        [warning] = [entry["message"] for entry in store.history() if entry["kind"] == "warning"]
    assert "may not fit: 100 MiB are there (a test)" in warning


def test_a_refusal_names_what_is_there() -> None:
    parts = {"weights": 4 * GIB, "gradients": 4 * GIB, "optimizer": 8 * GIB}
    Estimate(parts=parts, available=None).check()
    Estimate(parts=parts, available=Available(bytes=16 * GIB, limit="x")).check()
    with pytest.raises(UserError, match=r"take 16\.0 GiB .* 15\.0 GiB are there"):
        Estimate(parts=parts, available=Available(bytes=15 * GIB, limit="x")).check()


def test_rollouts_that_never_fit_are_refused_before_they_are_sampled(capfd: pytest.CaptureFixture[str]) -> None:
    many = ["prompts=1000000", "rollout.n=10000", "evaluation.holdout=2"]
    assert main(["run", "grpo", *many, "--dry-run"]) == 2
    said = capfd.readouterr().err
    assert "the rollouts of a step take at least 19073.5 GiB (10,000,000,000 of them)" in said and "rollout.n" in said


def test_a_dry_run_samples_a_part_of_a_large_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rl, "PREVIEWED", 5)
    recipe = find_recipe(
        "grpo", ["prompts=100", "rollout.n=2", "rollout.sampling.max_tokens=1", "evaluation.holdout=2"]
    )
    assert any("4 rollouts of 2 tasks" in line for line in preview(recipe)["stage rl (rl)"])


def test_the_command_prints_parts_and_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    small = ["prompts=1", "rollout.n=2", "evaluation.holdout=2"]
    assert main(["estimate", "grpo", *small, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["parts"]["optimizer"] == 2 * found["parts"]["weights"] > 0
    seconds = found["seconds_a_step"]["rl"]
    assert seconds["total"] == pytest.approx(seconds["sample and score"] + seconds["learn"]) and seconds["learn"] > 0
    assert main(["estimate", "grpo", "--no-measure"]) == 0
    assert "MiB at the peak: program" in capfd.readouterr().out


@pytest.mark.slow
def test_the_estimate_for_the_bundled_model_is_near_the_measured_peak(tmp_path: Path) -> None:
    less = ["steps=2", "evaluation.holdout=100", "threads=1", "filters={}"]
    command = [sys.executable, "-m", "posttrain", "run", "grpo", *less]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    with RunStore.open(tmp_path / "runs/grpo-1", reading=True) as store:
        measured = max(row.get("peak_memory_bytes", 0.0) for row in store.timing())
    guess = json.loads(
        subprocess.run(
            [sys.executable, "-m", "posttrain", "estimate", "grpo", *less, "--no-measure", "--json"],
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True,
        ).stdout
    )["peak_bytes"]  # fmt: skip
    assert 0.7 < guess / measured < 1.4, (guess, measured)


def test_demonstrations_with_an_optimizer_of_their_own_and_compared_gradients() -> None:
    """ReLIFT has the moments twice, AMFT four gradients: its own, those of both parts, and their difference."""
    plain, relift, amft = (estimate(find_recipe(name), 10, {}).parts for name in ("hpt", "relift", "amft"))
    assert relift["optimizer"] == 2 * plain["optimizer"] > 0 and relift["gradients"] == plain["gradients"]
    assert amft["gradients"] == 4 * plain["gradients"] > 0 and amft["optimizer"] == plain["optimizer"]


def test_every_record_of_a_private_batch_has_a_gradient() -> None:
    """64 records and the sum; with adapters those are small."""
    whole = ["setting=private_records", "models.policy.lora=null"]
    plain, private = (estimate(find_recipe(name, whole), 10, {}).parts for name in ("sft", "dp_sgd"))
    assert private["gradients"] == 65 * plain["gradients"] > 0 and private["optimizer"] == plain["optimizer"]
    adapted = estimate(find_recipe("dp_sgd"), 10, {}).parts
    assert 0 < adapted["gradients"] < private["gradients"] / 10
