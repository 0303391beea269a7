"""Rows of the functions in a folder of Python files: ``source``, ``function`` (its name) and ``path``.

Taken are functions at the top of a file with two statements or more, without decorators, in the order of the files.
Hidden folders are left out.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from posttrain.datasets.rows import Row
from posttrain.errors.foreign import file_in, guard, read_text

LARGEST = 1 << 20
"""Bytes of a file."""


def python_files(folder: Path) -> list[Path]:
    """The Python files in a folder and those below it. Raises `UserError` for one that leads out of it."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py") if not path.is_dir())
    shown = (name for name in names if not any(part.startswith(".") for part in Path(name).parts))
    return [file_in(folder, name) for name in shown]


def functions_of(path: Path, folder: Path) -> Iterator[Row]:
    """The functions of a file. Raises `UserError` for a file that is not Python."""
    text = read_text(path, LARGEST)
    with guard(f"{path} is not read as Python"):
        parsed = ast.parse(text)
    lines = text.splitlines()
    for node in parsed.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or len(node.body) < 2:
            continue
        source = "\n".join([*lines[node.lineno - 1 : node.end_lineno], ""])
        values = {"source": source, "function": node.name, "path": str(path.relative_to(folder))}
        yield Row(values, str(path), "line", node.lineno)
