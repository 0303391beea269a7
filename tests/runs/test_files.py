"""Files that must last: whole, on the disk before they are relied on, and never written through a link."""

import ast
import os
from pathlib import Path

import pytest

import posttrain.runs
from posttrain.errors import UserError
from posttrain.runs import files
from posttrain.runs.files import check_own_files, make_folder, replace_folder, restore_folders, write_file
from posttrain.runs.journal import Journal
from posttrain.runs.store import RunStore
from tests.runs.made_runs import RECIPE

RUNS = Path(posttrain.runs.__file__).parent
WRITES = {"write_text", "write_bytes", "rename", "replace", "mkdir", "makedirs", "symlink_to", "touch", "copy", "move"}
"""Names of calls that write a file or change a name."""
MAY_WRITE = {"files.py", "journal.py", "lock.py"}
"""The modules that open files for writing themselves."""


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the system, in order: syncs of files and folders, and renames."""
    asked: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        asked.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        asked.append(f"rename {Path(source).name} {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return asked


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from /proc")
def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_before_anybody_goes_on(
    tmp_path: Path, order: list[str]
) -> None:
    write_file(tmp_path / "a.json", "new")
    assert order == ["sync .a.json.tmp", "rename .a.json.tmp a.json", f"sync {tmp_path.name}"]
    assert (tmp_path / "a.json").read_text() == "new" and [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a.json", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync_descriptor", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "a.json", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a.json": "old"}


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (run / "a.json").symlink_to(secret)
    (run / ".a.json.tmp").symlink_to(secret)
    write_file(run / "a.json", "new")
    assert secret.read_text() == "mine" and (run / "a.json").read_text() == "new"
    assert not (run / "a.json").is_symlink()
    (run / "b.jsonl").symlink_to(secret)
    with pytest.raises(Exception, match=r"b\.jsonl"):
        Journal(run / "b.jsonl")
    assert secret.read_text() == "mine"


def test_a_folder_is_replaced_so_that_one_of_them_is_always_there(tmp_path: Path) -> None:
    for name, text in (("model", "old"), (".writing", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    replace_folder(tmp_path / ".writing", tmp_path / "model")
    assert (tmp_path / "model" / "config.json").read_text() == "new" and len(list(tmp_path.iterdir())) == 1
    # Stopped between the two renames: the old one is named again.
    (tmp_path / "model").rename(tmp_path / ".old-model")
    assert restore_folders(tmp_path) == []
    assert (tmp_path / "model" / "config.json").read_text() == "new"
    # Stopped after them: the old one goes.
    make_folder(tmp_path / ".old-model")
    assert restore_folders(tmp_path) == [tmp_path / ".old-model"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


LINKED = (
    *(".lock", "events.jsonl", "metrics.jsonl", "history.jsonl", "timing.jsonl", ".summary.json.tmp"),
    *(".report.html.tmp", "rollouts", "evals", "checkpoints", "checkpoints/step_000001_0"),
)


@pytest.mark.parametrize("name", LINKED)
def test_a_run_that_leads_elsewhere_is_not_opened(tmp_path: Path, name: str) -> None:
    with RunStore.create(tmp_path / "runs", "x", RECIPE) as store:
        run = store.folder
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    path = run / name
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(outside if "." not in name[1:] and name != ".lock" else outside / "file")
    before = {p: p.lstat().st_mtime_ns for p in run.rglob("*")}
    with pytest.raises(UserError, match=rf"{name.split('/')[-1]} is a link to"):
        RunStore.open(run)
    assert {p.name: p.read_text() for p in outside.iterdir()} == {"file": "mine"}
    assert {p: p.lstat().st_mtime_ns for p in run.rglob("*")} == before


def test_a_pipe_in_a_run_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics\.jsonl is a pipe"):
        check_own_files(tmp_path)


def test_a_torn_history_does_not_stop_its_own_repair(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "x", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {"reward": 0.5})
        run = store.folder
    for name in ("history.jsonl", "metrics.jsonl"):
        with (run / name).open("ab") as file:
            file.write(b'{"half')
    for _ in range(2):  # the second time shows that the first left sound files
        with RunStore.open(run) as store:
            kinds = [entry["kind"] for entry in store.history()]
    assert kinds.count("repaired") == 2 and len(store.metrics()) == 1


def calls(source: str) -> set[str]:
    """Calls in a module that write or rename: by the names of `WRITES`, and ``open`` with a mode that writes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
            if name == "open" and any(isinstance(m, str) and set(m) & set("wax+") and len(m) <= 3 for m in modes):
                found.add(f"open {modes}")
            elif name in WRITES and not (name == "replace" and _of_something_else(node)):
                found.add(name)
    return found


def _of_something_else(call: ast.Call) -> bool:
    """Whether a ``replace`` is that of a text or of `dataclasses`, and not of a file."""
    of_os = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "os"
    return not of_os and (isinstance(call.func, ast.Name) or len(call.args) != 1)


def test_nothing_else_in_runs_writes_files() -> None:
    found = {path.name: calls(path.read_text()) for path in RUNS.glob("*.py") if path.name not in MAY_WRITE}
    allowed = {
        # Folders that `replace_folder` puts in place later, a checkpoint that goes, folders of comparisons and data.
        "checkpoints.py": {"mkdir", "rename"},
        "launch.py": {"mkdir"},
        "comparison.py": {"mkdir"},
        "python.py": {"mkdir"},
    }
    wrong = {name: more for name, what in found.items() if (more := what - allowed.get(name, set()))}
    assert not wrong
    assert calls("os.replace(a, b)\npath.write_text('x')\nopen('a', 'w')\nt.replace('a', 'b')\nreplace(x, y=1)") == {
        "replace", "write_text", "open ['a', 'w']",
    }  # fmt: skip
