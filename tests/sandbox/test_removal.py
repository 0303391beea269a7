import os
from pathlib import Path

from posttrain.sandbox.removal import remove_tree


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
