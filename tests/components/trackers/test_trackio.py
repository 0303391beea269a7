"""Runs of Trackio in a local folder, read back from its database."""

from pathlib import Path
from typing import Any

import pytest

from posttrain.components.trackers.trackio import Trackio
from tests.components.trackers.sending import export, metrics, send_twice

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storage(libraries: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library's storage. Its folder is fixed at its import."""
    folder = tmp_path_factory.mktemp("trackio")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(folder))
        found = pytest.importorskip(
            "trackio.sqlite_storage", reason="needs posttrain[trackio]: make test puts it in .trackers"
        )
        yield found.SQLiteStorage


def rows(storage: Any, project: str) -> list[dict[str, Any]]:
    [name] = storage.get_runs(project)
    found: list[dict[str, Any]] = storage.get_logs(project, name)
    return found


def test_a_run_is_in_the_database(storage: Any, run: Path) -> None:
    export(run, Trackio(project="whole", every=6, samples=3))
    found = rows(storage, "whole")
    rewards = [(row["step"], pytest.approx(row["train/reward"])) for row in found if "train/reward" in row]
    assert rewards == metrics(run, "reward")
    assert [row["step"] for row in found if "eval/accuracy" in row] == [0, 6]
    tables = [(row["step"], row["train/samples"]["_value"]) for row in found if "train/samples" in row]
    assert [(step, len(table)) for step, table in tables] == [(1, 3), (6, 3)]
    assert set(tables[0][1][0]) >= {"prompt", "completion", "reward", "advantage"}
    [summary] = [row for row in found if "summary/steps" in row]
    assert (summary["step"], summary["summary/steps"]) == (6, 6)
    [name] = storage.get_runs("whole")
    assert storage.get_run_config("whole", name)["stages"]["rl"]["steps"] == 24


def test_a_resumed_run_has_each_step_once(storage: Any, run: Path, tmp_path: Path) -> None:
    send_twice(run, Trackio(project="resumed"), tmp_path / "sent.json")
    found = rows(storage, "resumed")
    assert [(r["step"], pytest.approx(r["train/reward"])) for r in found if "train/reward" in r] == metrics(
        run, "reward"
    )
