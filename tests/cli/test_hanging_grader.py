"""A grader that hangs costs its scores and no more, from the command line to the record."""

import json
from pathlib import Path

import pytest

from posttrain.cli import main

HANGS = """
def score(completion, answer):
    while answer in {hang}:
        pass
    return float(completion.strip() == answer)
"""


def run(folder: Path, hang: set[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(folder)
    rows = [{"prompt": f"{n}+5=", "answer": str(n + 5)} for n in range(10, 18)]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.py").write_text(HANGS.format(hang=hang))
    reward = "reward={kind: function, path: mine.py:score, time_limit: 0.1}"
    return main(["run", "grpo", "model=pebble", "tasks=mine.jsonl", reward, "steps=1", "prompts=7", "rollout.n=2"])


@pytest.mark.slow
def test_the_run_goes_on_and_nothing_counts_as_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, {"15", "16"}, monkeypatch) == 0
    (metrics,) = [json.loads(line) for line in next(tmp_path.rglob("metrics.jsonl")).read_text().splitlines()]
    assert metrics["grader_errors"] in (2 / 14, 4 / 14)  # one of the two may be held out
    import duckdb

    files = str(next(tmp_path.rglob("rollouts"))) + "/*.parquet"
    rows = duckdb.sql(f"SELECT score_status, score_explanation FROM '{files}'").fetchall()
    failed = [explanation for status, explanation in rows if status == "error"]
    assert failed and all("timeout_cpu" in explanation for explanation in failed)


@pytest.mark.slow
def test_a_grader_that_always_hangs_stops_the_run_with_the_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, {str(n) for n in range(100)}, monkeypatch) == 3
    error = capfd.readouterr().err
    assert "14 of 14 rollouts of this step could not be scored" in error and "timeout_cpu" in error
