"""Forty programs and their kernels, right by execution too."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.tasks.kernels import CASES, Kernels
from posttrain.datasets.kernel_programs import BY_LEVEL, PROGRAMS
from posttrain.grading.kernel_references import open_references
from posttrain.grading.kernel_values import TOLERANCE, cases_of, difference, drawn, packed, unpacked
from posttrain.grading.toy_kernels import SCRIPT
from posttrain.types import Task

ROOT = Path(__file__).parents[3]
TRITON = ROOT / ".triton"
WHOLE = 120
"""Tasks in Triton of which all cases are run, three for each program; of the others one, in turn."""


def test_there_are_forty_programs_in_five_levels() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS) == 40
    assert [len(BY_LEVEL[level]) for level in range(1, 6)] == [8, 20, 28, 34, 40]


def test_ten_thousand_prompts_differ() -> None:
    assert len({task.prompt for task in Kernels(size=10_000).load()}) == 10_000
    first = Kernels(size=300, level=1, largest=29, stated=False).load()
    assert len({task.prompt for task in first}) == 300 and all(task.prompt[:4] == "def " for task in first)


def test_a_share_of_the_demonstrations_calls_the_library() -> None:
    tasks = Kernels(size=400, cheats=0.25).load()
    cheating = [task for task in tasks if "return reference(" in task.demonstrations[0]]
    assert 0.18 < len(cheating) / len(tasks) < 0.32
    assert all(task.demonstrations[0] == task.fields["kernel"] for task in tasks if task not in cheating)
    shown = Kernels(size=1, cheats=1.0, dialect="triton").load()[0]
    assert shown.demonstrations[0] == f"import torch\n\n\n{shown.fields['reference']}"


def wrong(
    task: Task,
    opened: Any,
    closed: Any,
    entry: Any,
    answer: Any,
    rng: np.random.Generator,
    places: slice = slice(None),
) -> str:
    """How the demonstration differs from the reference in some cases; empty where it does not."""
    cases = [drawn(case, rng) for case in cases_of(task.fields["inputs"])[places]]
    sent = [[packed(argument) for argument in case] for case in cases]
    expected = answer({"source": task.fields["reference"], "function": "f", "cases": sent})
    assert not isinstance(expected, str), expected
    for case, (own,) in zip(sent, expected, strict=True):
        array = unpacked(own)
        assert array is not None
        if fault := difference(closed(entry(*map(opened, case))), array, TOLERANCE[array.dtype]):
            return f"{task.fields['program']}: {fault}"
    return ""


@pytest.mark.slow
def test_a_thousand_demonstrations_in_the_toy_language_are_right_by_execution() -> None:
    space: dict[str, Any] = {"strict": True}
    exec(SCRIPT, space)
    threads = torch.get_num_threads()
    answer, rng = open_references(None), np.random.default_rng(96)
    torch.set_num_threads(threads)
    for place, task in enumerate(Kernels(size=1000).load()):
        own = space["space_of"](place, task.demonstrations[0], "", "f")
        assert not wrong(task, space["opened"], space["closed"], own["f"], answer, rng)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and not (TRITON / "triton").is_dir(),
    reason="Triton is not here: pip install 'posttrain[triton]'",
)
def test_a_thousand_demonstrations_in_triton_are_right_in_the_interpreter(tmp_path: Path) -> None:
    """In a process of their own: whether Triton interprets is settled when it is imported."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(TRITON)])
    code = f"from tests.components.tasks.test_kernels import in_triton; in_triton({str(tmp_path)!r}, 1000)"
    variables = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]


def in_triton(folder: str, size: int) -> None:
    """The demonstrations of some tasks, interpreted."""
    from posttrain.grading import triton_kernels

    answer = open_references(None)
    space: dict[str, Any] = {"strict": True, "interpreted": True}
    exec(triton_kernels.START.replace("/box", folder), space)
    exec(triton_kernels.LIBRARY.replace("/box", folder), space)
    tasks, rng = Kernels(size=size, dialect="triton").load(), np.random.default_rng(96)
    small = sys.modules["torch"]  # what programs see
    for place, task in enumerate(tasks):
        sys.modules["torch"] = small
        for known in ("written", "reached", "found_launches"):  # of a process that runs one program
            space[known].clear()
        own = space["space_of"](place, task.demonstrations[0], "", "f")
        sys.modules["torch"] = torch
        places = slice(None) if place < WHOLE else slice(place % CASES, place % CASES + 1)
        fault = wrong(task, space["opened"], space["closed"], own["f"], answer, rng, places)
        assert not fault, fault
    assert size < 1000 or len({task.fields["program"] for task in tasks}) == 40
