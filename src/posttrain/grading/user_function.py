"""Loads a function of the user's, by file or by module, and locates errors in the user's file.

A file is run as it is on disk at that moment (never from a stale ``.pyc``), and the SHA-256 of exactly those bytes is
kept. It can import what lies beside it; the import path stays as it is (`posttrain.component.user_code`).

A function that neither a file nor its source can define, such as a closure over a model, is held by the process that it
was given in: ``__session__:name_1f2e3d``.
"""

import hashlib
import importlib
import inspect
import secrets
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from posttrain.component import nearest
from posttrain.component.user_code import file_of, is_path, load_file, require
from posttrain.errors import UserError
from posttrain.grading.rubrics import from_rubric, is_rubric

SESSION = "__session__"
"""The module name of functions that only this process has."""
_held: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function and the file that it was read from."""

    call: Callable[..., Any]
    file: str | None
    """Its path in Python's tracebacks; None for a function without source."""
    sha256: str
    """SHA-256 of the file; empty without one."""
    content: bytes | None = None
    """Bytes of a file that was given by its path, as they were run."""


def hold(function: Callable[..., Any]) -> str:
    """The spelling by which this process, and no other, finds a function again."""
    own = next((name for name, held in _held.items() if held is function), None)
    if own is None:
        plain = getattr(function, "__name__", type(function).__name__)
        own = f"{plain if plain.isidentifier() else 'function'}_{secrets.token_hex(3)}"
        _held[own] = function
    return f"{SESSION}:{own}"


def is_held(spelling: str) -> bool:
    """Whether a spelling is of a function that one process held, this one or another."""
    return spelling.startswith(f"{SESSION}:")


def held_name(spelling: str) -> str:
    """The name that a held function had."""
    return spelling.rpartition(":")[2].rpartition("_")[0]


def load_function(spelling: str, content: bytes | None = None) -> UserFunction:
    """The function of ``file.py:name`` or ``package.module:name``. Raises `UserError`.

    `content` is run in place of the current bytes of the file.
    """
    source, _, name = spelling.rpartition(":")
    if source == SESSION:
        return UserFunction(_taken(name, spelling), None, "")
    require(spelling)
    if is_path(source):
        file = file_of(source)
        content = _read(file, spelling) if content is None else content
        module = _run(file, content, spelling)
        digest = hashlib.sha256(content).hexdigest()
        return UserFunction(_attribute(module, name, spelling), str(file), digest, content)
    function = _attribute(_import(source, spelling), name, spelling)
    try:
        origin = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        origin = None
    digest = hashlib.sha256(Path(origin).read_bytes()).hexdigest() if origin else ""
    return UserFunction(function, origin, digest)


def read_file(spelling: str) -> bytes | None:
    """The current bytes of the file of ``file.py:name``; None for a module. Raises `UserError`."""
    source = spelling.rpartition(":")[0]
    return _read(file_of(source), spelling) if is_path(source) else None


def explain(error: BaseException, file: str | None) -> str:
    """Type and message of an error, and the line of the user's file that it passed through last."""
    message = " ".join("".join(traceback.format_exception_only(error)).split())
    if isinstance(error, SyntaxError):
        message = f"SyntaxError: {error.msg}"
        return f"{message} ({Path(error.filename or '').name} line {error.lineno}: {(error.text or '').strip()})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return f"{message[:500]}{where}"


def _taken(name: str, spelling: str) -> Callable[..., Any]:
    """A function that this process holds. Raises `UserError` in any other process."""
    if name not in _held:
        plain = held_name(spelling)
        raise UserError(
            f"the reward function '{plain}' was given to posttrain in Python and belongs to the process that it was "
            "given in: no file has it, and its source alone does not give it again. Pass it again in Python: "
            f"posttrain.resume(RUN, reward={plain}) to go on with a run, posttrain.run(RUN, reward={plain}) for a new"
            " one"
        )
    return _held[name]


def _read(file: Path, spelling: str) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        beside = [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else []
        hint = f"; {nearest(file.name, beside)}" if beside else ""
        raise UserError(f"reward function '{spelling}': no file {file} (working in {Path.cwd()}){hint}") from None
    except OSError as error:
        raise UserError(f"reward function '{spelling}': cannot read {file}: {error.strerror}") from None


def _run(file: Path, content: bytes, spelling: str) -> ModuleType:
    """Run a file as a module of its own."""
    try:
        return load_file(file, content)
    except (Exception, SystemExit) as error:
        where = explain(error, str(file))
        raise UserError(f"reward function '{spelling}': {file} does not run: {where}") from None


def _import(name: str, spelling: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"reward function '{spelling}': module '{name}' needs '{error.name}': {error}") from None
        raise UserError(
            f"reward function '{spelling}': no module '{error.name}' on the import path; write file.py:name for a file "
            f"(working in {Path.cwd()})"
        ) from None
    except (Exception, SystemExit) as error:
        raise UserError(
            f"reward function '{spelling}': module '{name}' does not load: {explain(error, None)}"
        ) from None


def _attribute(module: ModuleType, name: str, spelling: str) -> Callable[..., Any]:
    own = [key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")]
    if not hasattr(module, name):
        where = getattr(module, "__file__", None) or module.__name__
        raise UserError(f"reward function '{spelling}': no function '{name}' in {where}; {nearest(name, own)}")
    function = getattr(module, name)
    if is_rubric(function):
        return from_rubric(function, spelling)
    if not callable(function):
        raise UserError(f"reward function '{spelling}': '{name}' is no function, its type is {type(function).__name__}")
    found: Callable[..., Any] = function
    return found


def hold_again(function: Callable[..., Any], tree: Any) -> None:
    """Hold a function under the name that the recipe of a run, as a tree, has for the function that was held.

    Raises `UserError` unless the recipe has exactly one.
    """
    names = {value for value in _texts(tree) if is_held(value)}
    if len(names) != 1:
        raise UserError(
            f"the run's recipe has {len(names)} functions that were held by another process; reward= is for exactly one"
        )
    _held[names.pop().rpartition(":")[2]] = function


def _texts(value: Any) -> Iterator[str]:
    """Every text in a tree."""
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _texts(item)
