"""How verbs are declared, and how they print for people and for programs."""

import contextlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import click

_answers: TextIO | None = None
"""Where a JSON answer goes while everything else is kept off standard output; None outside of that."""


def verb(function: Callable[..., None]) -> click.Command:
    """Declare the command of a verb's file: its name is the file's, its help the docstring; adds ``--json``.

    The function gets the flag as `as_json`.
    """
    module = sys.modules[function.__module__]
    paragraphs = inspect.cleandoc(module.__doc__ or "").replace("``", "").split("\n\n")
    as_written = ["\b\n" + text if re.search("^    ", text, re.MULTILINE) else text for text in paragraphs]
    with_flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")(function)
    return click.command(module.__name__.rpartition(".")[2], help="\n\n".join(as_written))(with_flag)


@contextlib.contextmanager
def only_answers_on_stdout(active: bool) -> Iterator[None]:
    """While active, only `print_json` reaches standard output; all else, native code's writes too, goes to stderr."""
    global _answers
    if not active:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        answers = os.fdopen(os.dup(kept), "w", encoding="utf-8", errors="backslashreplace")
        with contextlib.redirect_stdout(sys.stderr), answers as _answers:
            yield
    finally:
        _answers = None
        os.dup2(kept, 1)
        os.close(kept)


def print_json(value: Any) -> None:
    """Print one JSON value; numbers that JSON does not have (NaN, infinity) are refused."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2), file=_answers)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns side by side, wrapped to the terminal if there is one."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as captured:
        console.print(table)
    click.echo(captured.get(), nl=False)
