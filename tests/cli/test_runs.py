"""`posttrain runs`: what there is, and its removal, which takes runs only."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.runs.inventory import bytes_of, remove
from posttrain.runs.store import RunStore
from tests.runs.made_runs import RECIPE, evaluate, make_run, record_steps


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def unfinished(root: Path) -> Path:
    with RunStore.create(root, "grpo", RECIPE) as store:
        evaluate(store, 0, "before", 0.25, 4)
        record_steps(store, [(1, "rl", 1, 0.0), (2, "rl", 2, 0.5)])
        return store.folder


def finished(root: Path) -> Path:
    folder = make_run(root, sft=2, rl=3, tasks=4)
    summary = {"recipe": "quickstart", "steps": 5, "accuracy_before": 0.25, "accuracy_after": 0.75, "seconds": 3.0}
    (folder / "summary.json").write_text(json.dumps({**summary, "gain": None}))
    return folder


def test_ls(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    finished(here / "runs"), unfinished(here / "runs")
    assert main(["runs", "ls"]) == 0
    head, *lines = capfd.readouterr().out.splitlines()
    assert head.split() == ["run", "state", "steps", "score", "size", "age"]
    shown = {line.split()[0]: line.split() for line in lines}
    assert shown["runs/quickstart-1"][1:7] == ["finished", "5", "25.0", "to", "75.0", "%"]
    assert shown["runs/grpo-1"][1:3] == ["stopped", "2"]
    assert main(["runs", "ls", "--json"]) == 0
    listed = {run["run"]: run for run in json.loads(capfd.readouterr().out)}
    assert listed["runs/grpo-1"]["steps"] == 2 and listed["runs/grpo-1"]["state"] == "stopped"
    assert listed["runs/quickstart-1"]["bytes"] == bytes_of(here / "runs" / "quickstart-1") > 10_000
    assert listed["runs/quickstart-1"]["accuracy_after"] == 0.75


def test_ls_fits_a_narrow_terminal(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are wrapped, and nothing else."""
    folder = finished(here / "runs")
    folder.rename(folder.with_name("a_name_that_is_much_longer_than_the_column_of_the_table_can_be-1"))
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["runs", "ls"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, map(str.rstrip, lines))) <= 60 and len(lines) > 2
    assert "25.0 to 75.0 %" in lines[1] and "finished" in lines[1]


def test_a_damaged_run_is_listed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = finished(here / "runs")
    (folder / "summary.json").write_text("{")
    assert main(["runs", "ls"]) == 0
    told = capfd.readouterr()
    assert "damaged" in told.out and "summary.json" in told.err


def test_nothing_to_list(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "ls"]) == 2
    assert "there is no run runs" in capfd.readouterr().err


def test_rm_states_what_is_freed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = finished(here / "runs"), unfinished(here / "runs")
    freed = bytes_of(first)
    assert main(["runs", "rm", "runs/quickstart-1", "--json", "--yes"]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out) == {"removed": ["runs/quickstart-1"], "bytes": freed}
    assert "runs/quickstart-1  " in told.err
    assert not first.exists() and second.exists()
    assert main(["runs", "rm", "runs/grpo-1", "--yes"]) == 0
    assert capfd.readouterr().out.startswith("removed 1 run, ")
    assert not second.exists()


def test_rm_confirms(here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished(here / "runs")
    assert main(["runs", "rm", "runs/quickstart-1"]) == 2
    assert "nobody can be asked here (no terminal)" in capfd.readouterr().err
    for said, code in (("n", 130), ("y", 0)):
        monkeypatch.setattr("sys.stdin", Typed(f"{said}\n"))
        assert main(["runs", "rm", "runs/quickstart-1"]) == code
        assert folder.exists() == (code == 130)
    assert "Remove 1 run and free " in capfd.readouterr().err


class Typed(io.StringIO):
    """What a user types at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["nothing", "folder", "runs", "link"])
def test_rm_takes_runs_only(here: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    """Of several, none is removed where one cannot be."""
    folder = finished(here / "runs")
    (here / "folder").mkdir()
    (here / "folder" / "recipe.yaml").write_text("mine")
    (here / "link").symlink_to(folder)
    assert main(["runs", "rm", "runs/quickstart-1", name, "--yes"]) == 2
    expected = {"nothing": "there is no run nothing", "link": "link is a link to"}
    assert expected.get(name, f"{name} is not a run") in capfd.readouterr().err
    assert folder.exists() and (here / "folder" / "recipe.yaml").exists()


def test_rm_follows_no_links(here: Path) -> None:
    folder, precious = finished(here / "runs"), here / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (folder / "model").rename(here / "elsewhere")
    (folder / "model").symlink_to(precious)
    (folder / "rollouts" / "other").symlink_to(precious)
    (folder / "evals" / "file").symlink_to(precious / "file")
    remove(folder)
    assert not folder.exists() and (precious / "file").read_text() == "kept"
    whole = finished(here / "runs")
    for path in (whole / "rollouts").iterdir():
        path.unlink()
    (whole / "rollouts").rmdir()
    (whole / "rollouts").symlink_to(precious)
    remove(whole)
    assert not whole.exists() and (precious / "file").read_text() == "kept"


def test_a_run_in_progress_is_neither_removed_nor_called_stopped(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The lock is of another process, as that of a real run is."""
    folder = unfinished(here / "runs")
    code = "import sys; from pathlib import Path; from posttrain.runs.lock import RunLock; "
    code += f"lock = RunLock(Path({str(folder)!r})); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert main(["runs", "ls", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)[0]["state"] == "running"
        assert main(["runs", "rm", "runs/grpo-1", "--yes"]) == 2
        assert f"in use by process {holder.pid}" in capfd.readouterr().err
        assert (folder / "metrics.jsonl").exists()
        holder.communicate("")
    assert main(["runs", "ls", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["state"] == "stopped"


def test_an_interrupted_removal_is_repeated(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished(here / "runs")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("posttrain.runs.inventory._inside", _interrupted)
        remove(folder)
    assert folder.exists() and not (folder / "checkpoints").exists()
    remove(folder)
    assert not folder.exists()


def _interrupted(folder: Path) -> list[Path]:
    raise KeyboardInterrupt
