"""What is made of the turns of posttrain and its peers; with the peers themselves where their environment is there."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.peers.outcome import compared, same_curve, same_results, summary
from posttrain.runs.speed._models import make_model
from posttrain.runs.speed.sizes import SIZES

ROOT = Path(__file__).resolve().parents[3]
PEERS = ROOT / ".venv-peers" / "bin" / "python"


def side(name: str, measure: str, seconds: list[float], **more: Any) -> Any:
    """A side with results; learning takes half of a step."""
    figure = {"measure": measure, "side": name, "size": "0.2M", "workload": "fixed", "dtype": "float32"}
    figure |= {"samples": 8, "peak_memory_bytes": 100} if measure == "grpo" else {"batch": 8}
    own = {"reward": 0.1, "loss": 0.0, "gradient_norm": 1.0, "sampling_seconds": 0.25}
    turns = [{"seconds": s, "tokens": 512, "not_learning_seconds": s / 2, **own} for s in seconds]
    return SimpleNamespace(figure=figure | more, rounds=turns, steps=turns, failed=None, child=None)


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = side("posttrain", "grpo", [1.0, 2.0, 1.0]), side("trl", "grpo", [2.0, 8.0, 3.0])
    theirs.figure["peak_memory_bytes"] = 400
    failed = side("trl_cb", "grpo", [])
    failed.failed = "trl_cb: ended"
    found = {c["measure"]: c for c in compared([ours, theirs, failed])}
    assert found["grpo"]["rounds"] == [2.0, 4.0, 3.0] and found["grpo"]["ratio"] == 3.0
    assert found["learner"]["ratio"] == pytest.approx(3.0)
    assert found["peak_memory"]["ratio"] == 0.25
    assert {c["peer"] for c in found.values()} == {"trl"}


def test_sampling_is_compared_at_the_same_batch() -> None:
    ours = [side("posttrain", "sampling", [1.0], batch=n) for n in (8, 16)]
    theirs = [side("generate", "sampling", [s], batch=n) for n, s in ((8, 2.0), (16, 3.0))]
    assert [(c["batch"], c["ratio"]) for c in compared([*ours, *theirs])] == [(8, 2.0), (16, 3.0)]


def test_figures_of_sides() -> None:
    failed = side("trl_cb", "grpo", [])
    failed.failed = "trl_cb: ended\nwhy"
    limits = side("machine", "limits", [])
    rates = {"sampling a": 10.0, "learning a": 4.0, "learning a by the kernel": 5.0}
    limits.rounds = [{"seconds": 1, "gflops": rates, "copy_gb_s": 4.0}]
    machine, trained, gone, sampled = summary(
        [limits, side("trl", "grpo", [1.0, 2.0, 4.0]), failed, side("generate", "sampling", [2.0])]
    )
    assert machine["best"]["learning"] == {"gflops": 5.0, "product": "learning a by the kernel"}
    assert machine["best_of_torch"]["learning"] == {"gflops": 4.0, "product": "learning a"}
    assert trained["value"] == 4.0 and trained["unit"] == "samples/s"
    # 8 prompts of 32 tokens and 512 new ones in half of 1, 2 and 4 seconds.
    assert trained["learner_tokens_a_second"] == pytest.approx((8 * 32 + 512) / 1.0)
    assert trained["sampled_tokens_a_second"] == pytest.approx(512 / 0.25)
    size = SIZES["0.2M"]
    least = size.sampling_flops([32], [[64] * 8]) / 10e9 + size.learning_flops([32], [[64] * 8]) / 5e9
    assert trained["share"] == pytest.approx(least / 2.0)
    assert gone["failed"] == "trl_cb: ended\nwhy" and "value" not in gone
    assert sampled["value"] == 256.0


def test_curves_within_noise() -> None:
    # Differences of 1, 3, 2: mean 2, standard error 1 / sqrt(3).
    told = same_curve("x", [{"x": 2.0}, {"x": 5.0}, {"x": 3.0}], [{"x": 1.0}, {"x": 2.0}, {"x": 1.0}])
    assert told["difference"] == pytest.approx(2.0) and told["standard_error"] == pytest.approx(1 / math.sqrt(3))
    assert not told["within_noise"], "2 is more than 3 / sqrt(3) = 1.73"
    assert same_curve("x", [{"x": 2.0}, {"x": 5.0}, {"x": 3.0}], [{"x": 1.0}, {"x": 5.5}, {"x": 3.0}])["within_noise"]


def test_the_same_model_returns_the_same(tmp_path: Path) -> None:
    from benchmarks.peers.outcome import logp_of_a_text

    model = make_model(tmp_path / "m", SIZES["0.2M"], 0.0)
    logp = logp_of_a_text(model, "float32")
    ours, theirs = side("posttrain", "grpo", [1.0] * 3), side("trl", "grpo", [1.0] * 3)
    theirs.figure["logp"] = [value + 0.25 * (place == 5) for place, value in enumerate(logp)]
    (told,) = same_results([ours, theirs], model)
    assert told["peer"] == "trl" and told["logp_largest_difference"] == pytest.approx(0.25, abs=1e-5)
    assert told["curves"]["reward"]["within_noise"]


def test_what_a_gpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.peers.__main__ import read_options

    monkeypatch.setattr(sys, "argv", ["peers", "--device", "cuda"])
    options = read_options()
    assert options.sizes == ["qwen2.5-0.5b"] and options.dtypes == options.peer_dtypes == ["bfloat16"]
    monkeypatch.setattr(sys, "argv", ["peers", "--sizes", "0.2M,qwen2.5-1.5b", "--dtypes", "float32"])
    options = read_options()
    assert options.device == "cpu" and options.sizes == ["0.2M", "qwen2.5-1.5b"]
    assert (options.dtypes, options.peer_dtypes) == (["float32"], ["float32"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PEERS.exists(), reason="make bench-peers makes the environment of the peers")
def test_all_sides_do_the_same_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.peers", "--sizes", "0.2M", "--workloads", "fixed", "--rounds", "3"]
    small = ["--warm-up", "0", "--samples", "8", "--batches", "8", "--dtypes", "float32", "--threads", "1"]
    done = subprocess.run([*command, *small, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "peers_0.2M_fixed.json").read_text())
    figures = result["figures"]
    assert not [f for f in figures if "failed" in f], done.stderr
    assert {f["side"] for f in figures if f["measure"] == "grpo"} == {"posttrain", "trl", "trl_cb", "bare"}
    assert {token for f in figures if f["measure"] == "grpo" for token in f["curves"]["tokens"]} == {8 * 64}
    for told in result["same_results"]:
        assert told["logp_largest_difference"] < 1e-4, told["peer"]
    assert os.fspath(tmp_path) not in json.dumps(result)
