"""The state of a run, from what its process left."""

import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.errors import Interrupted
from posttrain.runs.launch import _log_end
from posttrain.runs.state import state_of
from posttrain.runs.store import RunStore


def state(folder: Path) -> tuple[str, str]:
    with RunStore.open(folder, reading=True) as store:
        return state_of(folder, store.history())


def test_a_run_that_is_written_to_is_running(tmp_path: Path) -> None:
    """By this process, whose lock is still held after it was asked, and by another one."""
    with RunStore.create(tmp_path, "run", {}) as store:
        assert state(store.folder) == ("running", "")
        script = "import sys, pathlib, posttrain.runs.lock as lock; print(lock.is_locked(pathlib.Path(sys.argv[1])))"
        asked = [sys.executable, "-c", script, str(store.folder)]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "True\n"
    assert state(store.folder) == ("stopped", "no reason is recorded, as when it is killed")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Interrupted("stopped after step 3 (Ctrl-C)"), ("stopped", "stopped after step 3 (Ctrl-C)")),
        (KeyboardInterrupt(), ("stopped", "KeyboardInterrupt")),
        (ValueError("no such thing"), ("failed", "no such thing")),
    ],
)
def test_the_reason_is_recorded(tmp_path: Path, error: BaseException, expected: tuple[str, str]) -> None:
    with RunStore.create(tmp_path, "run", {}) as store:
        _log_end(store, error)
    assert state(store.folder) == expected
    (store.folder / "summary.json").write_text("{}")
    assert state(store.folder) == ("finished", "")


def test_what_a_tracker_reports_at_the_end_does_not_hide_the_reason(tmp_path: Path) -> None:
    ended = [{"kind": "failed", "message": "disk full"}, {"kind": "tracker", "message": "tracker mlflow did not get 3"}]
    assert state_of(tmp_path, ended) == ("failed", "disk full")
