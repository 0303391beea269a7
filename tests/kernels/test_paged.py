"""Attention to pages on a GPU: its kernels in Triton's interpreter, and compiled for GPUs that are not here."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from posttrain.kernels import paged

ROOT = Path(__file__).resolve().parents[2]
TRITON = ROOT / ".triton"
"""Where `make test` puts Triton for these tests alone."""
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None and not (TRITON / "triton").is_dir(),
    reason="Triton is not here: `make test` puts it in .triton where there is a wheel of it for this machine",
)


LAWS = (
    "attention_is_that_of_float64",
    "a_row_is_the_same_to_the_bit_in_any_batch",
    "pages_are_written_at_one_place_a_row",
    "tokens_are_chosen_as_the_engine_chooses",
    "signals_are_those_of_float64",
    "tokens_drawn_in_one_go_are_those_of_single_steps",
)


def broken(folder: Path, *names: str, **environment: str) -> dict[str, str]:
    """How those of these functions of `paged_cases` fail that do, where Triton can be imported."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(TRITON)])
    variables = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder), "POSTTRAIN_KERNELS": "off"}
    command = [sys.executable, "-m", "tests.kernels.paged_cases", *names]
    done = subprocess.run(command, cwd=ROOT, env=variables | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All laws in one process, which takes seconds to start."""
    return broken(tmp_path_factory.mktemp("triton"), *LAWS, TRITON_INTERPRET="1")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_in_the_interpreter(law: str, interpreted: dict[str, str]) -> None:
    assert law not in interpreted, interpreted[law]


@needs_triton
@pytest.mark.slow
def test_they_compile_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    assert broken(tmp_path, "they_compile_for_gpus_that_are_not_here") == {}


def test_where_there_is_no_gpu_nothing_is_taken_and_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert not paged.usable(torch.zeros(1)) and "NVIDIA" in paged.why_not(cpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for capability, triton, said in (((7, 5), True, "capability 7.5"), ((9, 0), False, "Triton"), ((9, 0), True, "")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index, found=capability: found)
        monkeypatch.setattr(paged, "find_spec", lambda name, found=triton: found or None)
        paged._why_not_on.cache_clear()
        assert said in paged.why_not(gpu) and bool(paged.why_not(gpu)) == bool(said)
    assert paged.status(gpu) == "captured"
    monkeypatch.setenv("POSTTRAIN_GRAPHS", "off")
    assert paged.status(gpu).startswith("kernels: ") and "POSTTRAIN_GRAPHS=off" in paged.status(gpu)
    monkeypatch.setenv("POSTTRAIN_KERNELS", "off")
    assert paged.status(gpu) == "plain: switched off by POSTTRAIN_KERNELS=off"
    paged._why_not_on.cache_clear()
