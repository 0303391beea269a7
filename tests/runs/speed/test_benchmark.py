"""The whole of it on tiny workloads, and the command line around it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.runs.speed import benchmark, sizes, start_up
from posttrain.runs.speed.benchmark import Plan, measure, plan_of

QUIET = {"sizes": None, "dtypes": None, "batches": None, "what": None, "workloads": "fixed,ragged"}


@pytest.mark.slow
def test_everything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(
        sizes=["0.2M"], batches=[8], rounds=1, warm_up=0, grpo_samples=8, learning_samples=8, waiting=(8, 16),
        dtypes=["float32", "bfloat16"], measures=["sampling", "learning", "grpo", "memory", "growth"],
    )  # fmt: skip
    result = measure(plan, print)
    figures = result["figures"]
    found = {(f["measure"], f.get("dtype"), f.get("workload")) for f in figures}
    for dtype in plan.dtypes:
        for workload in plan.workloads:
            own = {(name, dtype, workload) for name in ("sampling", "learning", "grpo", "peak_memory")}
            assert own | {(f"memory_{phase}", dtype, workload) for phase in ("sampling", "learning")} <= found
        assert {("growth_ratio", dtype, None), ("limit_sampling", dtype, None), ("limit_memory", dtype, None)} <= found
    assert all(f["value"] > 0 for f in figures)
    assert all(0 < f["share"] < 1.5 for f in figures if "share" in f), "more than the machine can do"
    for figure in figures:
        if "parts" in figure:
            assert sum(figure["parts"].values()) == pytest.approx(figure["value"])
            assert figure["parts"]["optimizer"] > 1.9 * figure["parts"]["weights"]
    fixed = next(f for f in figures if f["measure"] == "grpo" and f["workload"] == "fixed")
    assert fixed["curves"]["tokens"] == [8 * 64]
    assert result["machine"]["threads"] == 1 and "folder" not in result["machine"]
    json.dumps(result, allow_nan=False)
    assert "round 1 of 1" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_gpu_is_asked_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shape of Qwen2, bfloat16, learning and decoding at two batches: only the device is another."""
    small = sizes.Size(
        name="qwen2.5-0.5b", family="qwen2", layers=2, width=32, heads=4, kv_heads=2, mlp_width=64, vocabulary=300
    )
    from posttrain.runs.speed import worker
    from posttrain.runs.speed._models import make_model

    plan = plan_of(device="cuda", everything=False, rounds=1, threads=1, **QUIET)
    assert plan.sizes == sizes.CUDA_SIZES and plan.dtypes == ("bfloat16",) and plan.batches == [64, 256]
    assert plan.workloads == ("fixed",) and set(plan.measures) == {"sampling", "learning"}
    assert 16_000 < plan.learning_samples * 96 <= 16_384
    monkeypatch.setitem(sizes.SIZES, small.name, small)
    monkeypatch.setattr(benchmark, "model_folder", lambda folder, *_: make_model(folder / "m", small, 0.0))
    for figure, spec in benchmark._cases(plan, small.name, Path(_folder(monkeypatch))):
        spec = {**spec, "device": "cpu"}
        if "samples" in spec:
            spec["samples"] = 8
        result = worker.make_case(**spec).turn()
        assert result["seconds"] > 0, figure


def _folder(monkeypatch: pytest.MonkeyPatch) -> str:
    import tempfile

    made = tempfile.mkdtemp()
    monkeypatch.setenv("TMPDIR", made)
    return made


def test_plans() -> None:
    quick = plan_of(device="cpu", everything=False, rounds=5, threads=2, **QUIET)
    assert (quick.sizes, quick.dtypes, quick.batches) == (("3.2M",), ("float32",), [256])
    every = plan_of(device="cpu", everything=True, rounds=5, threads=2, **QUIET)
    assert (every.sizes, every.dtypes, every.batches) == (sizes.CPU_SIZES, ("float32", "bfloat16"), [256, 128])
    some = plan_of(device="cpu", everything=True, rounds=5, threads=2, **{**QUIET, "sizes": "25M", "what": "learning"})
    assert (some.sizes, some.measures) == (("25M",), ("learning",))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("sizes", "3.2", "--sizes: '3.2' is not known; "),
        ("what", "sampling,lerning", "'lerning' is not known; did you mean 'learning'"),
        ("batches", "0", "--batches: '0' is not a number above 0"),
        ("dtypes", ",", "--dtypes is empty"),
    ],
)
def test_mistakes_are_explained(option: str, value: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        plan_of(device="cpu", everything=False, rounds=1, threads=1, **{**QUIET, option: value})
    assert said.lower() in str(error.value).lower()


def test_where_the_result_goes_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["posttrain", "bench", "--out", "/somewhere/x.json", "--rounds", "3", "--out=y"])
    assert benchmark.command_line("posttrain") == "posttrain bench --rounds 3"


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["bench", "--device", "cuda"]) == 2
    assert "torch sees no GPU" in capsys.readouterr().err


def test_help_is_fast() -> None:
    code = (
        "import sys; from posttrain.cli import main; main(['bench', '--help'])\n"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "A B A B" in done.stdout


def test_the_share_of_a_file_that_is_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"x" * 65536)
    with file.open("rb") as opened:
        opened.read()
        held = start_up._held(opened.fileno(), 65536)
    assert held is None or (len(held) == 16 and all(held)), "just read, so in memory, where the system says so"


@pytest.mark.slow
def test_a_start_is_timed_and_one_that_fails_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = start_up.start(benchmark.environment(1), cold=False)
    assert found["seconds"] > 0 and found["read_from_disk"] == 0.0
    monkeypatch.setattr(start_up, "COMMAND", ("-c", "import sys; sys.exit('broken')"))
    with pytest.raises(RuntimeError, match="exit code 1: broken"):
        start_up.start({}, cold=False)
