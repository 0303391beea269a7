"""What users get wrong, from the command line to the message: runs that are in use, damaged or edited."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.cli import main
from tests.cli.mistakes.given import REWARDS, SMALL, Refused


@pytest.mark.slow
def test_two_processes_on_one_run(capfd: pytest.CaptureFixture[str], refused: Refused) -> None:
    assert main(["run", "grpo", *SMALL]) == 0
    record = {path: path.read_bytes() for path in Path("runs/grpo-1").rglob("*") if path.is_file()}
    hold = (
        "import pathlib, sys; from posttrain.runs.lock import RunLock; lock = RunLock(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, "runs/grpo-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    assert holder.stdout.readline() == "held\n"
    capfd.readouterr()
    message = refused("resume", "runs/grpo-1")
    assert message.startswith(f"the run runs/grpo-1 is in use by process {holder.pid} on ")
    assert "two processes cannot write to one run" in message
    lock = Path("runs/grpo-1/.lock")
    assert {p: p.read_bytes() for p in record if p != lock} == {p: c for p, c in record.items() if p != lock}
    holder.communicate("\n")
    assert main(["resume", "runs/grpo-1"]) == 0, "the lock goes with its process"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.partition("stages:")[0], "runs/grpo-1/recipe.yaml has no stages and no base."),
        (lambda text: "a: [1\n", "runs/grpo-1/recipe.yaml line 2: expected ',' or ']'"),
        (lambda text: text.replace("steps: 2", "stesp: 2"), "RL has no field 'stesp'; did you mean 'steps'?"),
    ],
)
def test_a_run_whose_recipe_was_damaged(refused: Refused, damage: Callable[[str], str], message: str) -> None:
    assert main(["run", "grpo", *SMALL]) == 0
    recipe = Path("runs/grpo-1/recipe.yaml")
    recipe.write_text(damage(recipe.read_text()))
    assert message in refused("resume", "runs/grpo-1")
    assert Path("runs/grpo-1/model/model.safetensors").is_file()


@pytest.mark.slow
def test_resuming_checks_the_data_again_and_loses_nothing(
    capfd: pytest.CaptureFixture[str], ended: Callable[..., tuple[int, str]]
) -> None:
    assert main(["run", "grpo", *SMALL, "reward=mine.py:fine"]) == 0
    capfd.readouterr()
    metrics = Path("runs/grpo-1/metrics.jsonl").read_bytes()
    Path("sums.jsonl").rename("gone.jsonl")
    code, message = ended("resume", "runs/grpo-1")
    assert code == 2
    assert "no file, folder or kind of tasks named 'sums.jsonl'" in message
    Path("gone.jsonl").rename("sums.jsonl")
    Path("mine.py").unlink()
    assert "no file" in ended("resume", "runs/grpo-1")[1]
    assert Path("runs/grpo-1/metrics.jsonl").read_bytes() == metrics
    assert Path("runs/grpo-1/model/model.safetensors").is_file()
    Path("mine.py").write_text(REWARDS)
    assert main(["resume", "runs/grpo-1"]) == 0
    assert Path("runs/grpo-1/metrics.jsonl").read_bytes() == metrics


@pytest.mark.slow
def test_an_edited_recipe_is_refused_until_it_is_accepted(refused: Refused, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "grpo", *SMALL]) == 0
    recipe = Path("runs/grpo-1/recipe.yaml")
    recipe.write_text(recipe.read_text().replace("steps: 2", "steps: 3"))
    said = "runs/grpo-1/recipe.yaml is not the recipe that the run began with: steps was 2 and is 3."
    assert said in refused("resume", "runs/grpo-1")
    capfd.readouterr()
    assert main(["resume", "runs/grpo-1", "--accept-changes"]) == 0
    assert "changed: steps was 2 and is 3" in capfd.readouterr().out
    assert "steps was 2 and is 3" in Path("runs/grpo-1/history.jsonl").read_text()
    assert main(["resume", "runs/grpo-1"]) == 0, "what was accepted is not asked about again"
