"""Logs of Inspect: by their schema, and read back with the library."""

import json
from pathlib import Path

import pytest

from posttrain.components.trackers.inspect import Inspect
from tests.components.trackers.sending import export


@pytest.fixture(scope="module")
def logs(run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One for each evaluation, in order."""
    folder = tmp_path_factory.mktemp("logs")
    export(run, Inspect(out=str(folder)))
    return sorted((folder / run.name / "inspect").iterdir(), key=lambda path: path.stem[-4:])


def test_each_evaluation_is_a_log(logs: list[Path]) -> None:
    before, after = (json.loads(path.read_text()) for path in logs)
    assert (before["version"], before["status"], before["eval"]["metadata"]["step"]) == (2, "success", 0)
    assert after["eval"]["task"] == "quickstart (rl)" and after["eval"]["metadata"]["step"] == 6
    assert before["eval"]["task_args"]["stages.rl.steps"] == 24
    assert len(after["samples"]) == 8 and after["samples"][0]["epoch"] == 1
    rewards = [sample["scores"]["reward"]["value"] for sample in after["samples"]]
    assert after["results"]["scores"][0]["metrics"]["accuracy"]["value"] == sum(rewards) / 8


@pytest.mark.slow
def test_the_library_reads_it(libraries: None, logs: list[Path]) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="needs inspect_ai: make test puts it in .trackers")
    assert len(log.list_eval_logs(str(logs[0].parent))) == 2
    read = log.read_eval_log(str(logs[1]))
    assert read.status == "success" and read.eval.model.startswith("posttrain/quickstart-1")
    [sample, *_] = read.samples
    assert sample.input.startswith("What is") and sample.output.completion == sample.messages[-1].text
    assert "####" in sample.output.completion and sample.target.isdigit()
    assert sample.scores["reward"].value in (0.0, 1.0) and sample.scores["reward"].explanation
    assert {s.output.stop_reason for s in read.samples} <= {"stop", "max_tokens"}
    assert read.results.scores[0].metrics["accuracy"].value == pytest.approx(
        sum(s.scores["reward"].value for s in read.samples) / 8
    )
