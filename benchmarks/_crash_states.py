"""What a power cut may leave of a folder, by what POSIX promises and no more.

A file's bytes are on the disk once the file is synced, a folder's names once the folder is. Until then each sector of
512 bytes, the size of a file and each change of a name is lost or kept on its own, in any order; so a name can be there
without the bytes, zeros in place of them, a rename without what was renamed, a removal without the rename before it.
One change of names (a rename within a folder too) is not torn.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks._file_trace import Operation, Tree

SECTOR = 512


@dataclass
class File:
    """A file's bytes: as they are on the disk for sure, and as the running system shows them."""

    synced: bytes = b""
    now: bytes = b""


@dataclass
class Folder:
    """A folder's names, likewise; `pending` are the changes between, in order: names with what they name, or None."""

    synced: "dict[str, File | Folder]" = field(default_factory=dict)
    now: "dict[str, File | Folder]" = field(default_factory=dict)
    pending: "list[dict[str, File | Folder | None]]" = field(default_factory=list)

    def change(self, names: "dict[str, File | Folder | None]") -> None:
        """Change names, all of them or none."""
        self.now = apply(self.now, [names])
        self.pending.append(names)


Node = File | Folder
Names = Callable[[Folder], "Sequence[dict[str, Node | None]]"]
"""Which pending changes of a folder's names a crash keeps."""
Bytes = Callable[[File], bytes]
"""What it leaves of a file."""


def apply(names: dict[str, Node], changes: "Sequence[dict[str, Node | None]]") -> dict[str, Node]:
    """Names after some changes."""
    result = dict(names)
    for change in changes:
        for name, node in change.items():
            if node is None:
                result.pop(name, None)
            else:
                result[name] = node
    return result


class Disk:
    """A folder whose names and files are synced or not, moved on operation by operation."""

    def __init__(self) -> None:
        """An empty folder, on the disk."""
        self.root = Folder()
        self.reported: list[tuple[str, str]] = []
        """What was reported until now: ``saved`` with the name of a checkpoint, ``ended``."""

    def do(self, operation: Operation) -> None:
        """Carry out one operation."""
        kind, path, *details = operation
        if kind in ("saved", "ended"):
            self.reported.append((kind, path))
        elif kind == "sync":
            _sync(self._find(path))
        elif kind in ("write", "truncate"):
            file = self._find(path)
            assert isinstance(file, File)
            file.now = _written(file.now, *details) if kind == "write" else _sized(file.now, details[0])
        elif kind == "rename":
            (folder, name), (other, target) = self._parent(path), self._parent(details[0])
            assert folder is other, "renames stay within a folder"
            folder.change({name: None, target: folder.now[name]})
        else:
            folder, name = self._parent(path)
            folder.change({name: {"mkdir": Folder, "create": File}.get(kind, lambda: None)()})

    def tree(self, names: Names, content: Bytes) -> Tree:
        """What a crash leaves that keeps these names and bytes."""
        found: Tree = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name, node in sorted(apply(folder.synced, names(folder)).items()):
                found[prefix + name] = content(node) if isinstance(node, File) else None
                if isinstance(node, Folder):
                    walk(node, f"{prefix}{name}/")

        walk(self.root, "")
        return found

    def now(self) -> Tree:
        """What the running system shows, and a killed process leaves."""
        return self.tree(every_name, all_bytes)

    def pending_names(self) -> int:
        """Number of changes of names that are not on the disk for sure, in folders that a path leads to."""
        return sum(len(folder.pending) for folder in _folders(self.root))

    def _find(self, path: str) -> Node:
        node: Node = self.root
        for part in path.split("/") if path != "." else ():
            assert isinstance(node, Folder)
            node = node.now[part]
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._find(above or ".")
        assert isinstance(folder, Folder)
        return folder, name


def _sync(node: Node) -> None:
    if isinstance(node, File):
        node.synced = node.now
    else:
        node.synced, node.pending = dict(node.now), []


def _folders(folder: Folder) -> Iterator[Folder]:
    yield folder
    for node in folder.now.values():
        if isinstance(node, Folder):
            yield from _folders(node)


def _written(content: bytes, offset: int, data: bytes) -> bytes:
    return _sized(content, max(len(content), offset))[:offset] + data + content[offset + len(data) :]


def _sized(content: bytes, size: int) -> bytes:
    return content[:size].ljust(size, b"\0")


# What a crash keeps of names


def no_name(folder: Folder) -> "Sequence[dict[str, Node | None]]":
    """Only what is synced."""
    return ()


def every_name(folder: Folder) -> "Sequence[dict[str, Node | None]]":
    """All changes."""
    return folder.pending


def some_names(rng: random.Random, share: float) -> Names:
    """Each change with this probability."""
    return lambda folder: [change for change in folder.pending if rng.random() < share]


def all_names_but(number: int) -> Names:
    """All changes but one, counted over all folders in the order in which they are walked through."""
    seen = 0

    def names(folder: Folder) -> "Sequence[dict[str, Node | None]]":
        nonlocal seen
        first, seen = seen, seen + len(folder.pending)
        return [change for i, change in enumerate(folder.pending, first) if i != number]

    return names


# What it keeps of bytes


def synced_bytes(file: File) -> bytes:
    """Only what is synced."""
    return file.synced


def all_bytes(file: File) -> bytes:
    """Everything."""
    return file.now


def zeros(file: File) -> bytes:
    """The new size, with zeros where bytes were not synced."""
    return _sized(file.synced, len(file.now))


def torn(rng: random.Random) -> Bytes:
    """What was written, up to anywhere."""

    def content(file: File) -> bytes:
        if file.synced == file.now:
            return file.now
        same = len(file.synced) if file.now.startswith(file.synced) else 0
        place = rng.randint(same, len(file.now))
        return file.now[:place] if same else file.now[:place] + file.synced[place:]

    return content


def sectors(rng: random.Random, share: float) -> Bytes:
    """The old or the new size, and each sector the new one with this probability, else the old one or zeros."""

    def content(file: File) -> bytes:
        if file.synced == file.now:
            return file.now
        size = rng.choice((len(file.synced), len(file.now)))
        parts = [
            (file.now if rng.random() < share else file.synced)[at : at + SECTOR].ljust(SECTOR, b"\0")
            for at in range(0, size, SECTOR)
        ]
        return b"".join(parts)[:size]

    return content


def _one_name_lost(disk: Disk, rng: random.Random) -> Tree:
    return disk.tree(all_names_but(rng.randrange(max(1, disk.pending_names()))), all_bytes)


KINDS: dict[str, Callable[[Disk, random.Random], Tree]] = {
    "everything (a kill)": lambda disk, rng: disk.now(),
    "nothing but what is synced": lambda disk, rng: disk.tree(no_name, synced_bytes),
    "names, no bytes": lambda disk, rng: disk.tree(every_name, synced_bytes),
    "names and sizes, zeros for bytes": lambda disk, rng: disk.tree(every_name, zeros),
    "bytes, no names": lambda disk, rng: disk.tree(no_name, all_bytes),
    "torn tails": lambda disk, rng: disk.tree(every_name, torn(rng)),
    "sectors in any order": lambda disk, rng: disk.tree(every_name, sectors(rng, rng.random())),
    "names in any order": lambda disk, rng: disk.tree(some_names(rng, rng.random()), all_bytes),
    "one change of names lost": _one_name_lost,
    "names and sectors in any order": lambda disk, rng: disk.tree(
        some_names(rng, rng.random()), sectors(rng, rng.random())
    ),
}
"""Kinds of crash states: what each leaves of a disk."""


def digest(tree: Tree) -> bytes:
    """A digest of names and contents."""
    total = hashlib.sha256()
    for path, content in sorted(tree.items()):
        total.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        total.update(content or b"")
    return total.digest()
