"""Sums up to n: both programs are right, and the tests expect what Python's sum returns."""

import shutil
import subprocess
from pathlib import Path

import pytest

from posttrain.components.tasks.running_sums import CLOSED, LOOP, RunningSums


def test_outputs_are_those_of_python() -> None:
    for task in RunningSums(size=20, tests=2).load():
        a, b = map(int, str(task.prompt).removeprefix("C: sum ").strip().split("*i+"))
        for test in task.fields["tests"]:
            n = int(test["input"])
            assert 5000 <= n <= 9999
            assert int(test["output"]) == sum(a * i + b for i in range(1, n + 1))
        assert task.answer == CLOSED.format(a=a, b=b)


def test_half_of_the_demonstrations_are_slow() -> None:
    tasks = RunningSums(size=400).load()
    slow = sum("for(" in task.demonstrations[0] for task in tasks)
    assert 150 < slow < 250
    assert not any("for(" in task.demonstrations[0] for task in RunningSums(size=50, slow=0.0).load())


@pytest.mark.slow
@pytest.mark.parametrize("program", [LOOP, CLOSED])
def test_both_programs_are_right(program: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "main.c").write_text(program.format(a=3, b=2))
    subprocess.run(["gcc", "-O2", "-o", "program", "main.c"], cwd=tmp_path, check=True)
    done = subprocess.run(["./program"], cwd=tmp_path, input="4\n", text=True, capture_output=True, check=True)
    assert done.stdout == str(3 * (1 + 2 + 3 + 4) + 2 * 4)
