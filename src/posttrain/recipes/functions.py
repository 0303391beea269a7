"""Recipes from functions in Python files and modules, with errors that name file and line."""

import functools
import importlib
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from posttrain.component import nearest
from posttrain.component.user_code import load_file
from posttrain.errors import UserError
from posttrain.recipes.tree import Recipe


def from_function(text: str, folder: Path) -> Recipe:
    """The recipe that a function returns: ``path/file.py:function`` or ``package.module:function``."""
    function = load_function(text, folder)
    wanting = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if wanting:
        raise UserError(
            f"{text} has no default for '{wanting[0]}', so there is no recipe to start from; name one with setting=, "
            f"or write def {function.__name__}({wanting[0]}: Recipe | None = None) and start from a setting"
        )
    return blamed(function, text)()


def blamed(function: Callable[..., Recipe], text: str) -> Callable[..., Recipe]:
    """Wrap a function so that its errors are a `UserError` with its name, `text`, and the line."""

    @functools.wraps(function)
    def call(*arguments: Recipe) -> Recipe:
        with blaming(Path(inspect.getfile(function))):
            recipe = function(*arguments)
        if not isinstance(recipe, Recipe):
            raise UserError(f"{text} returned {type(recipe).__name__}; a recipe function returns a Recipe")
        return recipe

    return call


def load_function(text: str, folder: Path) -> Callable[..., Recipe]:
    """The function that ``path/file.py:function`` or ``package.module:function`` names."""
    where, _, name = text.rpartition(":")
    module = _load_file(folder / where) if where.endswith(".py") else _load_module(where)
    function = getattr(module, name, None)
    if not inspect.isfunction(function):
        known = [
            key for key, item in vars(module).items() if inspect.isfunction(item) and item.__module__ == module.__name__
        ]
        raise UserError(f"{where} has no function '{name}'; {nearest(name, known)}")
    return function


def _load_module(name: str) -> ModuleType:
    """Import a module by its name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"{name} needs the module '{error.name}', which is not installed") from error
        raise UserError(f"no module '{name}' on the import path (working in {Path.cwd()})") from None


def _load_file(path: Path) -> ModuleType:
    """Run a Python file as a module; it can import other files of its folder."""
    if not path.is_file():
        raise no_file(path, "*.py")
    path = path.resolve()
    with blaming(path):
        return load_file(path, path.read_bytes())


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Convert any error of a recipe's own code to a `UserError` with its line in the file."""
    try:
        yield
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.absolute())]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        match error:
            case UserError():
                what = str(error)
            case ValidationError():
                what = "; ".join(
                    f"{'.'.join(map(str, e['loc']))}: {e['msg']}".removeprefix(": ") for e in error.errors()
                )
            case SyntaxError():
                what = f"SyntaxError: {error.msg}"
            case _:
                what = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} line {line}: {what}") from error


def no_file(path: Path, pattern: str) -> UserError:
    """The error for a missing file, with the nearest name of an existing one."""
    beside = [file.name for file in path.parent.glob(pattern)] if path.parent.is_dir() else []
    return UserError(
        f"no file {path} (working in {Path.cwd()})" + (f"; {nearest(path.name, beside)}" if beside else "")
    )
