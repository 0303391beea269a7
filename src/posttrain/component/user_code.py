"""Code of the user's that recipes name: how it is loaded, and when it may run.

A recipe can name code: a kind that is a module or a file (``kind: mine.py``), a reward function (``mine.py:score``), a
function that makes recipes (``base: mine.py:recipe``). A user who opens a recipe or a run of someone else must not
run that person's code by accident. So:

- Commands that read (`Policy.NEVER`) run none. A component of the user's is shown with its settings as written.
- Commands that run things (`Policy.CONSENT`) run code that the command line itself names, and code that was accepted:
  with ``--trust-code``, or by having been named on a command line or in Python before.
- In Python (`Policy.FREE`) components and functions are loaded freely; recipes that are read from files still need
  consent for the code that they name.

What was accepted is remembered in ``$XDG_STATE_HOME/posttrain/trusted-code.json`` (by default under
``~/.local/state``). ``--trust-code`` accepts exactly the bytes that were read, by SHA-256. Code that the user named is
accepted by its path too, so that editing one's own reward function needs no new consent.

A file is loaded under a private name and its folder never joins `sys.path`: there it could take the place of an
optional dependency of a library. Modules that lie beside the file can be imported by it, and by nothing else.
"""

import ast
import builtins
import enum
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from posttrain.errors import UserError
from posttrain.errors.foreign import read_json

PREFIX = "_posttrain_user_"
"""Begins the name of every module that is made from a file of the user's."""


class Policy(enum.Enum):
    """When code that a recipe names may run."""

    FREE = enum.auto()
    CONSENT = enum.auto()
    NEVER = enum.auto()


@dataclass(frozen=True)
class _State:
    """What this process allows."""

    policy: Policy = Policy.FREE
    trust: bool = False
    """Accept all code that needs consent, as ``--trust-code`` does."""
    typed: frozenset[str] = frozenset()
    """What the words of the command line hold: code that is named there may run."""
    unread: bool = False
    """Leave components of the user's unread, to find out which code a recipe names before any of it runs."""


_state = _State()
_accepted: set[str] = set()
"""Digests of code that was accepted while this process ran."""


@dataclass(frozen=True)
class Code:
    """Code that a recipe names."""

    spelling: str
    """As written: ``mine.py:score``, ``package.module``."""
    files: tuple[Path, ...]
    """The file, then what it imports from beside it; empty for what cannot be found."""
    sha256: str
    """Of all these files; empty without one."""

    def __str__(self) -> str:
        """The spelling with the files that it stands for."""
        if not self.files:
            return f"{self.spelling} (not found)"
        beside = f" with {', '.join(file.name for file in self.files[1:])}" if self.files[1:] else ""
        return f"{self.spelling} ({self.files[0]}{beside}, sha256 {self.sha256[:12]})"


# ----------------------------------------------------------------------------------------------------------- consent


@contextmanager
def allowing(policy: Policy | None = None, *, trust: bool = False, command_line: Iterable[str] = ()) -> Iterator[None]:
    """Apply a policy inside the context; None keeps the one in force. `command_line` are the words of the command."""
    global _state
    before = _state
    typed = frozenset(part for word in command_line for part in _parts(word))
    _state = replace(before, policy=policy or before.policy, trust=trust or before.trust, typed=before.typed | typed)
    try:
        yield
    finally:
        _state = before


@contextmanager
def unread(typed: Iterable[str] = ()) -> Iterator[None]:
    """Leave components of the user's unread inside the context."""
    global _state
    before = _state
    _state = replace(before, unread=True, typed=before.typed.union(*map(_parts, typed)))
    try:
        yield
    finally:
        _state = before


def is_unread(kind: str) -> bool:
    """Whether a component of the user's is left unread at this moment."""
    if reads_only() or not _state.unread:
        return reads_only()
    code = find_code(kind)
    return not (_state.trust or kind in _state.typed or _is_known(code))


def reads_only() -> bool:
    """Whether this is a command that runs no code of a recipe."""
    return _state.policy is Policy.NEVER and not _state.trust


def accept(named: Sequence[Code], where: str, typed: Iterable[str] = ()) -> None:
    """Accept the code that a recipe names. Raises `UserError` for code that needs consent and has none.

    Args:
        named: The code.
        where: What names it, for the message.
        typed: What the user wrote besides the command line; code that is spelled in it is accepted by its path too.
    """
    written = _state.typed.union(*map(_parts, typed))
    named = [code for code in named if code.files or not is_path(_source(code.spelling))]  # no file, nothing to run
    own = [code for code in named if code.spelling in written]
    strangers = [code for code in named if code not in own and not _is_known(code)]
    if strangers and not _state.trust:
        listed = "".join(f"\n  {code}" for code in strangers)
        raise UserError(
            f"{where} names code that was neither named on a command line here nor accepted before:{listed}\n"
            "Running it is running a program with your rights. Read it, then add --trust-code (in Python: "
            "trust_code=True); code that stays the same needs no consent again"
        )
    _accepted.update(code.sha256 for code in named if code.files)
    remember(strangers, by_path=False)
    remember(own)


def require(spelling: str) -> None:
    """Raises `UserError` where code may not be loaded now."""
    if _state.policy is Policy.FREE:
        return
    code = find_code(spelling)
    if reads_only():
        raise UserError(f"{code} is code, and this command only reads; posttrain run, resume and eval run code")
    if code.sha256 not in _accepted:
        accept([code], "the recipe")


def remember(named: Iterable[Code], *, by_path: bool = True) -> None:
    """Keep consent for the next command; by path for code of the user's own, which may be edited."""
    known = _ledger()
    new = {}
    for code in named:
        entry = {"code": code.spelling, **({"file": str(code.files[0])} if by_path and code.files else {})}
        if code.files and (code.sha256 not in known or (by_path and known[code.sha256] != entry)):
            new[code.sha256] = entry
    if not new:
        return
    path = _ledger_path()
    with suppress(OSError):  # without a home folder consent is needed each time
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({**known, **new}, file, indent=1)
        temporary.replace(path)


def remember_own(named: Iterable[Code]) -> None:
    """Keep that the user named code in Python; code that was accepted as someone else's stays accepted as it is."""
    known = _ledger()
    remember(code for code in named if code.sha256 not in known)


def _parts(word: str) -> set[str]:
    """What a word of a command line may name: itself, the value of ``path=value``, and each item inside of it."""
    return {word, word.partition("=")[2], *re.split(r"[=,\s{}\[\]'\"]+", word)}


def _is_known(code: Code) -> bool:
    known = _ledger()
    files = {entry.get("file") for entry in known.values()}
    return bool(code.files) and (
        code.sha256 in _accepted or code.sha256 in known or str(code.files[0]) in files  # own code, edited
    )


def _ledger_path() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "posttrain" / "trusted-code.json"


def _ledger() -> dict[str, dict[str, str]]:
    """What was accepted, by SHA-256; nothing where the file cannot be read."""
    try:
        found = read_json(_ledger_path())
    except (UserError, RuntimeError):  # a damaged file; no home folder
        return {}
    return {sha256: entry for sha256, entry in found.items() if isinstance(entry, dict)}


# ----------------------------------------------------------------------------------------------- finding, not running


def is_path(source: str) -> bool:
    """Whether what stands before the colon is a file rather than a module."""
    return source.endswith(".py") or "/" in source or "\\" in source


def is_user_kind(kind: str) -> bool:
    """Whether a component's kind is a module or file of the user's."""
    return "." in kind


def file_of(source: str) -> Path:
    """The file that a path means, from the working directory."""
    return (Path.cwd() / Path(source).expanduser()).resolve()


def _source(spelling: str) -> str:
    """The file or module of a spelling."""
    return spelling.rpartition(":")[0] if ":" in spelling else spelling


def find_code(spelling: str) -> Code:
    """The files of ``file.py``, ``file.py:name``, ``package.module`` or ``package.module:name``; runs none of them."""
    source = _source(spelling)
    files = _with_neighbours(file_of(source)) if is_path(source) else _module_files(source)
    try:
        digests = "".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    except OSError:
        return Code(spelling, (), "")
    return Code(spelling, tuple(files), hashlib.sha256(digests.encode()).hexdigest() if files else "")


def defines_class(spelling: str) -> bool:
    """Whether code has a class with a base, as a component has; read from its text. True for what is not found."""
    files = find_code(spelling).files
    try:
        tree = ast.parse(files[0].read_bytes()) if files else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # importing it raises the error
    return tree is None or any(isinstance(node, ast.ClassDef) and node.bases for node in ast.walk(tree))


def _module_files(name: str) -> list[Path]:
    """The file of a module, then those of the packages around it, which are run first when it is imported."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)  # a top-level name imports nothing
    except (ImportError, ValueError):
        return []
    files: list[Path] = []
    for depth, _ in enumerate(["", *rest]):
        if depth and spec is not None:
            spec = PathFinder.find_spec(".".join([top, *rest[:depth]]), spec.submodule_search_locations)
        if spec is None:
            return []
        if spec.origin and Path(spec.origin).is_file():
            files.insert(0, Path(spec.origin).resolve())
    return files


def _with_neighbours(file: Path) -> list[Path]:
    """A file, and the files beside it that it imports, directly or not."""
    found, waiting = [file], [file]
    while waiting:
        for neighbour in _imported_from_beside(waiting.pop()):
            if neighbour not in found:
                found.append(neighbour)
                waiting.append(neighbour)
    return found


def _imported_from_beside(file: Path) -> Iterator[Path]:
    """Files beside a file that it imports by name."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            module = _beside(file.parent, name.partition(".")[0])
            if module is not None and module.name == "__init__.py":
                yield from sorted(module.parent.rglob("*.py"))
            elif module is not None:
                yield module


def _beside(folder: Path, name: str) -> Path | None:
    """The file of a module or package in a folder."""
    return next((f for f in (folder / f"{name}.py", folder / name / "__init__.py") if f.is_file()), None)


# ------------------------------------------------------------------------------------------------------------ loading


def load_file(file: Path, content: bytes) -> ModuleType:
    """Run a file as a module with a name of its own. What it raises is raised.

    It is run as `content` has it, never from a stale ``.pyc``.
    """
    name = module_name(file)
    module = ModuleType(name)
    module.__file__ = str(file)
    _prepare(module, file.parent)
    sys.modules[name] = module  # dataclasses, pydantic and pickle look their module up there
    try:
        exec(compile(content, str(file), "exec"), module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def module_name(file: Path) -> str:
    """The name under which a file of the user's is loaded."""
    stem = "".join(letter if letter.isalnum() else "_" for letter in file.stem)
    return f"{PREFIX}{hashlib.sha256(str(file).encode()).hexdigest()[:8]}_{stem}"


def _prepare(module: ModuleType, folder: Path) -> None:
    """Let a module import what lies beside it; what is installed comes first."""

    def import_beside(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        try:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        except ModuleNotFoundError as error:
            top = name.partition(".")[0]
            if level or error.name != top or (file := _beside(folder, top)) is None:
                raise
        private = _load_neighbour(file, folder, top)
        if private.__name__ != top and "." in name:
            found = importlib.import_module(f"{private.__name__}.{name.partition('.')[2]}")
            return found if fromlist else private
        for part in fromlist or ():
            if not hasattr(private, part) and hasattr(private, "__path__"):
                with suppress(ModuleNotFoundError):
                    importlib.import_module(f"{private.__name__}.{part}")
        return private

    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_beside}


def _load_neighbour(file: Path, folder: Path, name: str) -> ModuleType:
    """A module or package beside a file of the user's, loaded once under a private name."""
    own = f"{PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}_beside_{name}"
    if own in sys.modules:
        return sys.modules[own]
    inside = [str(file.parent)] if file.name == "__init__.py" else None
    if inside and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    spec = importlib.util.spec_from_file_location(own, file, submodule_search_locations=inside)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    _prepare(module, folder)
    sys.modules[own] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module


class _Loader(SourceFileLoader):
    """Loads a module inside a package that lies beside a file of the user's."""

    def exec_module(self, module: ModuleType) -> None:
        """Run it; it imports from beside its package as its package does."""
        folder = Path(str(module.__file__)).parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        _prepare(module, folder)
        super().exec_module(module)


class _Finder:
    """Finds modules inside packages that lie beside files of the user's."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of such a module; None for any other."""
        if path is None or not name.startswith(PREFIX):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, str(spec.loader.path))
        return spec
