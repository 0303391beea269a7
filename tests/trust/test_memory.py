"""A reward function that takes memory without end takes its worker with it, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from posttrain.cli import main
from posttrain.components.rewards.function import Function
from posttrain.policies.folder import new_folder
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

HOARD = """
def hoard():
    kept = []
    while True:
        kept.append(bytes(1 << 24))

def some(completion, answer):
    if answer == "hoard":
        hoard()
    return float(len(completion))

def every(completion):
    hoard()

def stubborn(completion):
    while len(completion) > 4:
        try:
            hoard()
        except MemoryError:
            continue
    return 4.0
"""
LIMIT_GIB = 0.5


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a greedy function, tasks and a model."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HOARD)
    tasks = [{"question": f"{n}+1=", "answer": "hoard" if n == 5 else "1"} for n in range(12)]
    Path("sums.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    new_folder(Path("tiny"), layers=1, width=16, heads=2, kv_heads=1, context=64)
    yield
    torch.set_num_threads(threads)


def test_the_score_is_an_error_and_the_others_are_unharmed() -> None:
    reward = Function(path="mine.py:some", memory_limit=LIMIT_GIB, workers=1)
    asked = [Task(key=str(n), prompt="?", answer=answer) for n, answer in enumerate(["1", "hoard", "1", "hoard", "1"])]
    scores = score_all(reward, *(attempt("four" + "!" * n, task) for n, task in enumerate(asked)))
    assert [score.status for score in scores] == ["ok", "error", "ok", "error", "ok"]
    assert [score.value for score in scores[::2]] == [4.0, 6.0, 8.0]
    assert all("MemoryError" in score.explanation for score in scores[1::2]), scores[1].explanation


@pytest.mark.slow
def test_one_that_will_not_give_up_is_ended_by_its_time() -> None:
    reward = Function(path="mine.py:stubborn", memory_limit=LIMIT_GIB, time_limit=0.5, workers=1)
    scores = score_all(reward, *(attempt(text) for text in ("four", "fives", "four")))
    assert [score.status for score in scores] == ["ok", "error", "ok"]
    assert "timeout_cpu" in scores[1].explanation


def begun(function: str) -> int:
    """Exit code of a run that is scored by a function of the file."""
    return main(
        [
            "run", "grpo", "model=tiny", "tasks=sums.jsonl", "evaluation.holdout=2", "steps=3", "prompts=4",
            "rollout.n=2", "rollout.sampling.max_tokens=4", "threads=1", "evaluation.verifier=match",
            f"reward={{kind: function, path: 'mine.py:{function}', memory_limit: {LIMIT_GIB}, workers: 1}}",
        ]
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_goes_on_without_what_could_not_be_scored() -> None:
    assert begun("some") == 0
    failed = [json.loads(line)["grader_errors"] for line in Path("runs/grpo-1/metrics.jsonl").read_text().splitlines()]
    assert len(failed) == 3
    assert 0.0 < sum(failed) / 3 < 0.5


@pytest.mark.slow
def test_a_run_of_which_nothing_can_be_scored_stops_with_the_evidence(capfd: pytest.CaptureFixture[str]) -> None:
    assert begun("every") == 3
    said = capfd.readouterr().err
    assert (
        "8 of 8 rollouts of this step could not be scored" in said and "MemoryError" in said and "Traceback" not in said
    )
