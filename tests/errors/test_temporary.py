"""Temporary folders: removed by the next process where theirs was killed, at any depth, and never through a link."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.errors.temporary import PREFIX, make_temporary, remove_temporary, remove_tree, sweep, temporary_folder


@pytest.mark.slow
def test_three_thousand_folders_in_one_another(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(top)
    assert not top.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "a" / "link").symlink_to(kept)
    (top / "link").symlink_to(kept / "file")
    os.mkfifo(top / "pipe")
    (top / "a" / os.fsdecode(b"\xff")).write_text("x")
    (top / "a").chmod(0)
    remove_tree(top)
    assert not top.exists() and (kept / "file").read_text() == "x"
    top.symlink_to(kept)
    remove_tree(top)
    assert not top.is_symlink() and (kept / "file").read_text() == "x"
    remove_tree(top)


def test_a_folder_of_a_killed_process_is_swept_and_one_of_a_living_process_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posttrain.errors.temporary.gettempdir", lambda: str(tmp_path))
    code = (
        "import sys; from posttrain.errors.temporary import make_temporary; path = make_temporary('test')\n"
        "(path / 'file').write_text('x'); print(path, flush=True); sys.stdin.read()"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, **pipes) as process:  # type: ignore[call-overload]
        path = Path(process.stdout.readline().strip())
        assert path.parent == tmp_path and path.name.startswith(PREFIX)
        assert sweep() == [] and (path / "file").exists()
        process.send_signal(signal.SIGKILL)
    assert sweep() == [path] and not path.exists()


def test_own_folders_stay_until_they_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("posttrain.errors.temporary.gettempdir", lambda: str(tmp_path))
    before = len(os.listdir("/dev/fd"))
    path = make_temporary("test")
    assert sweep() == [] and path.is_dir()
    remove_temporary(path)
    with temporary_folder("test") as inner:
        (inner / "file").write_text("x")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path.parent)
    assert sweep() == [] and [p.name for p in tmp_path.iterdir()] == [f"{PREFIX}link"]
    assert len(os.listdir("/dev/fd")) == before
