"""What a run does about its alarms: note, pause, stop and go on, roll back."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.runs.store import RunStore
from tests.runs.processes import command, contents

SMALL = [
    "models.policy.source=new",
    "models.policy.shape={layers: 1, width: 16, heads: 2, kv_heads: 1, mlp_width: 16, context: 64}",
    "tasks={kind: arithmetic, size: 40, terms: [2, 2]}",
    "evaluation.holdout=8",
    "rl.steps=6",
    "rl.prompts=2",
    "rollout.n=2",
    "rollout.sampling.max_tokens=4",
    "checkpoints.every_steps=2",
    "filters={}",
    "threads=1",
]
RANDOM_WEIGHTS_ARE_CUT = "{kind: truncation, bound: 0.01, patience: 3, action: %s}"
"""An untrained model never ends its answer, so this alarm is raised in step 3."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(action: str, *more: str, code: int) -> RunStore:
    alarm = RANDOM_WEIGHTS_ARE_CUT % action
    assert main(["run", "grpo", *SMALL, f"alarms={{cut: {alarm}}}", "name=watched", *more]) == code
    return RunStore.open(Path("runs/watched-1"), reading=True)


def alarms(store: RunStore) -> list[tuple[int, str]]:
    return [(event["step"], event["alarm"]) for event in store.events() if event["kind"] == "alarm"]


@pytest.mark.slow
def test_a_note_is_reported_once_and_the_run_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    store = run("note", code=0)
    assert alarms(store) == [(3, "cut")]
    assert "alarm: cut: 100 % of the completions are cut" in capfd.readouterr().out
    assert any("1 alarm, the last at step 3" in warning for warning in store.summary()["warnings"])
    assert "completions are cut" in (store.folder / "report.html").read_text()


@pytest.mark.slow
def test_a_stop_is_saved_and_the_resumed_run_is_the_undisturbed_one(capfd: pytest.CaptureFixture[str]) -> None:
    store = run("stop", code=3)
    assert "stopped after step 3" in capfd.readouterr().err
    assert [entry["step"] for entry in store.metrics()] == [1, 2, 3]
    assert main(["resume", "runs/watched-1"]) == 0  # it stands raised, so that it does not stop again
    assert len(store.metrics()) == 6
    assert alarms(store) == [(3, "cut")]
    assert main(["run", "grpo", *SMALL, "alarms={}", "name=free"]) == 0
    kept = [contents(Path("runs") / name) for name in ("watched-1", "free-1")]
    different = {name for name in kept[0] if kept[0][name] != kept[1].get(name)}
    assert different <= {"recipe.yaml", "events.jsonl"}


@pytest.mark.slow
def test_a_pause_waits_until_its_file_is_removed() -> None:
    file, over = Path("runs/watched-1/paused"), threading.Event()
    seen: list[str] = []

    def look() -> None:
        while not file.exists() and not over.is_set():
            time.sleep(0.05)
        seen.append(file.read_text())
        seen.append(Path("runs/watched-1/metrics.jsonl").read_text())
        file.unlink()

    somebody = threading.Thread(target=look)
    somebody.start()
    store = run("pause", code=0)
    over.set()
    somebody.join()
    assert "Remove this file to go on" in seen[0]
    assert len(seen[1].splitlines()) == 3
    assert len(store.metrics()) == 6


@pytest.mark.slow
def test_rolling_back_draws_otherwise_and_stops_after_three_times(capfd: pytest.CaptureFixture[str]) -> None:
    store = run("roll_back", code=3)
    back = [entry for entry in store.history() if entry["kind"] == "rolled back"]
    assert [entry["step"] for entry in back] == [3, 3, 3]
    assert "after 3 roll-backs" in capfd.readouterr().err
    # Steps 1 and 2 were saved in good health and stand; step 3 was drawn again each time.
    assert [entry["step"] for entry in store.metrics()] == [1, 2, 3]


@pytest.mark.slow
def test_a_kill_after_a_roll_back_changes_nothing() -> None:
    once = "alarms={cut: {kind: truncation, bound: 0.01, patience: 3, action: roll_back}}"
    arguments = ["grpo", *SMALL, once, "rl.steps=5", "checkpoints.every_steps=1"]
    assert main(["run", *arguments, "name=whole"]) == 3
    process = command(Path.cwd(), "run", *arguments, "name=killed")
    history = Path("runs/killed-1/history.jsonl")
    while process.poll() is None and not (history.exists() and "rolled back" in history.read_text()):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert main(["resume", "runs/killed-1"]) == 3
    whole, killed = (without_model(contents(Path("runs") / name)) for name in ("whole-1", "killed-1"))
    del whole["recipe.yaml"], killed["recipe.yaml"]  # they have other names
    assert whole == killed


def without_model(files: dict[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in files.items() if not name.startswith("model")}


@pytest.mark.slow
def test_new_draws_are_other_draws() -> None:
    def sampled(name: str) -> list[Any]:
        store = RunStore.open(Path("runs") / name, reading=True)
        return [row["completion"] for row in store.rollouts(3, ["completion"])]

    alarm = "alarms={cut: {kind: truncation, bound: 0.01, patience: 3, action: %s}}"
    assert main(["run", "grpo", *SMALL, alarm % "note", "rl.steps=3", "name=straight"]) == 0
    assert main(["run", "grpo", *SMALL, alarm % "roll_back", "rl.steps=3", "name=back"]) == 3
    assert sampled("straight-1") != sampled("back-1")


@pytest.mark.slow
def test_json_output_of_a_stopped_run_states_why(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "grpo", *SMALL, "alarms={cut: %s}" % (RANDOM_WEIGHTS_ARE_CUT % "stop"), "--json"]) == 3
    answer = json.loads(capfd.readouterr().out)
    assert answer["exit_code"] == 3
    assert "cut: 100 %" in answer["error"]
