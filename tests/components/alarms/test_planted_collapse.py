"""A learning rate 50 times too high destroys a small model, and the alarm stops the run within five steps."""

from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.runs.store import RunStore


@pytest.mark.slow
def test_a_learning_rate_fifty_times_too_high_is_stopped_within_five_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["steps=14", "prompts=8", "rollout.n=8", "evaluation.early=4", "threads=1"]
    assert main(["run", "grpo", *small, "lr=5e-3", "alarms.collapse.action=stop"]) == 3
    assert "stopped after step" in capsys.readouterr().err
    with RunStore.open(tmp_path / "runs/grpo-1", reading=True) as store:
        [alarm] = [event for event in store.events() if event.get("alarm") == "collapse"]
        assert alarm["step"] <= 5
        assert "held-out accuracy is" in alarm["message"] and "lr=auto" in alarm["message"]
