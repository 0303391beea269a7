"""Files that must last: whole, on the disk before they are relied on, and never written through a link."""

import ast
import os
from pathlib import Path

import pytest

import posttrain.runs
from posttrain.errors import UserError
from posttrain.runs import checkpoints, files
from posttrain.runs.files import check_own_files, make_folder, replace_folder, restore_folders, write_file
from posttrain.runs.journal import Journal
from posttrain.runs.store import RunStore
from tests.runs.made_runs import RECIPE

RUNS = Path(posttrain.runs.__file__).parent
WRITES = {
    *("write_text", "write_bytes", "rename", "replace", "mkdir", "makedirs", "touch", "move", "truncate", "ftruncate"),
    *("copy", "copy2", "copyfile", "copytree", "link", "symlink", "symlink_to", "hardlink_to", "save_file"),
}
"""Names of calls that write a file or change a name."""
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}
"""Flags of `os.open` with which a file can be written."""
MAY_WRITE = {"files.py", "journal.py", "lock.py"}
"""The modules that open files for writing themselves."""


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls to the system, in order: syncs of files and folders, and renames."""
    asked: list[str] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def synced(descriptor: int) -> None:
        asked.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        asked.append(f"rename {Path(source).name} {Path(target).name}")
        replace(source, target)

    def renamed(source: Path, target: Path) -> None:
        asked.append(f"rename {Path(source).name} {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "rename", renamed)
    return asked


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from /proc")
def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_before_any_reader_goes_on(
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


def test_the_final_model_is_on_the_disk_before_it_has_its_name(tmp_path: Path, order: list[str]) -> None:
    temporary = tmp_path / ".model-writing"
    (temporary / "tokens").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "tokens/more"):
        (temporary / name).write_text("new")
    replace_folder(temporary, tmp_path / "model")
    renamed = order.index("rename .model-writing model")
    files = ["sync more", "sync config.json", "sync tokenizer.json", "sync tokens"]
    assert sorted(order[:renamed]) == sorted([*files, "sync .model-writing"]) and order[renamed - 1] != "sync tokens"
    assert order[renamed + 1 :] == [f"sync {tmp_path.name}"]


def test_the_folder_of_runs_and_what_begins_a_run_are_on_the_disk(tmp_path: Path, order: list[str]) -> None:
    RunStore.create(tmp_path / "all" / "runs", "x", RECIPE).close()
    named = [asked for asked in order if asked.startswith("sync") and not asked.endswith(".tmp")]
    assert named[:2] == [f"sync {tmp_path.name}", "sync all"]  # where the names of `all` and `runs` are
    assert named[2] == "sync runs"  # where the name of the run is
    for name in ("environment.json", "recipe.yaml"):
        first = order.index(f"sync .{name}.tmp")
        assert order[first : first + 3] == [f"sync .{name}.tmp", f"rename .{name}.tmp {name}", "sync x-1"]


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


def test_what_a_power_cut_damaged_after_the_checkpoint_is_forgotten_and_nothing_before(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "x", RECIPE) as store:
        store.log_metrics(1, "rl", 1, {"reward": 0.5})
        position, run = store.position(), store.folder
        for step in (2, 3):
            store.log_metrics(step, "rl", step, {"reward": 0.5})
    for name in ("metrics.jsonl", "timing.jsonl", "events.jsonl", "evals.jsonl"):
        with (run / name).open("ab") as file:  # a sector in the middle was not written, and one after it was
            file.write(bytes(512) + b'0.5}\n{"step": 4, "stage": "rl"}\n')
    with RunStore.open(run) as store:
        store.rewind(position)
        assert [entry["step"] for entry in store.metrics()] == [1] and not store.events()
        [rewound] = [entry for entry in store.history() if entry["kind"] == "rewound"]
    assert rewound["steps_undone"] == 3
    (run / "metrics.jsonl").write_bytes(b"\0" * (position["metrics.jsonl"] - 1) + b"\n" + b'{"step": 2}\n')
    with RunStore.open(run) as store, pytest.raises(UserError, match="is not an entry of a run"):
        store.rewind(position)
        store.metrics()


def test_a_power_cut_damages_one_line_of_the_history_at_most(tmp_path: Path, order: list[str]) -> None:
    with RunStore.create(tmp_path, "x", RECIPE) as store:
        run = store.folder
        assert order[-2:] == [f"sync {run.name}", "sync history.jsonl"]  # its name, and what is in it
        store.log_history("opened", "again")
        assert order[-1] == "sync history.jsonl"
    whole = (run / "history.jsonl").read_bytes()
    (run / "history.jsonl").write_bytes(whole + bytes(300) + b'"}\n')  # the next line, half of it zeros
    for name in (".report.html.tmp", "rollouts/.step_000001.parquet.tmp"):
        (run / name).write_bytes(b"half")
    with RunStore.open(run) as store:
        assert [entry["kind"] for entry in store.history()] == ["started", "opened", "repaired", "opened"]
    assert not list(run.rglob("*.tmp"))


def test_a_deleted_checkpoint_has_lost_its_name_before_it_loses_its_files(tmp_path: Path, order: list[str]) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ("a", "b"):
        checkpoints.save(tmp_path / "checkpoints", name, lambda folder: None, keep=1)
    new, old = ["rename .tmp-b b", "sync checkpoints"], ["rename a .tmp-a", "sync checkpoints"]
    assert order[-4:] == [*new, *old]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["b"]


def calls(source: str) -> set[str]:
    """Calls in a module that write or rename: by the names of `WRITES`, and ``open`` with a mode or flag to write."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in FLAGS:
            found.add(node.attr)
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
        # Folders that `replace_folder` puts in place later, a checkpoint that goes, folders of comparisons, data and
        # fuzzing.
        "checkpoints.py": {"mkdir", "rename"},
        "snapshot.py": {"save_file"},
        "launch.py": {"mkdir"},
        "comparison.py": {"mkdir"},
        "fuzzing.py": {"mkdir"},
        "grid.py": {"mkdir"},
        "python.py": {"mkdir"},
    }
    wrong = {name: more for name, what in found.items() if (more := what - allowed.get(name, set()))}
    assert not wrong
    assert calls("os.open(a, os.O_WRONLY | os.O_CREAT)\nshutil.copyfile(a, b)") == {"O_WRONLY", "O_CREAT", "copyfile"}
    assert calls("os.replace(a, b)\npath.write_text('x')\nopen('a', 'w')\nt.replace('a', 'b')\nreplace(x, y=1)") == {
        "replace", "write_text", "open ['a', 'w']",
    }  # fmt: skip
