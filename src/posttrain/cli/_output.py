"""Declaration of verbs, and output as text or JSON."""

import contextlib
import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TextIO

import click

from posttrain.errors.foreign import printable

_TRUST = "posttrain.trust_code"
_answers: TextIO | None = None
"""The stream of JSON answers while all other output goes to standard error; else None."""

KEEP_HELP = "File of what the sweep has measured; what is there is not measured again."


def verb(function: Callable[..., None]) -> click.Command:
    """Declares the command of a verb's file: its name is the file's name, its help the module's docstring.

    Adds ``--json``, which the function gets as `as_json`. Code that a recipe names runs with consent only.
    """
    return _declared(_under_policy(function, "CONSENT"), function)


def reading_verb(function: Callable[..., None]) -> click.Command:
    """Declare the command of a verb that runs no code that a recipe names."""
    return _declared(_under_policy(function, "NEVER"), function)


def listing_verb(function: Callable[..., None]) -> click.Command:
    """Declare the command of a verb that opens no recipe, and so starts faster."""
    return _declared(function, function)


def _declared(function: Callable[..., None], written: Callable[..., None]) -> click.Command:
    module = sys.modules[written.__module__]
    paragraphs = inspect.cleandoc(module.__doc__ or "").replace("``", "").split("\n\n")
    as_written = ["\b\n" + text if re.search("^    ", text, re.MULTILINE) else text for text in paragraphs]
    with_flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")(function)
    return click.command(module.__name__.rpartition(".")[2], help="\n\n".join(as_written))(with_flag)


def _under_policy(function: Callable[..., None], name: str) -> Callable[..., None]:
    """The function, run under a policy for code that recipes name; code on the command line itself may run."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        from posttrain.component.user_code import Policy, allowing

        context = click.get_current_context()
        words: Sequence[str] = context.find_root().obj or ()
        with allowing(Policy[name], trust=context.meta.get(_TRUST, False), command_line=words):
            function(*arguments, **options)

    return run


def _trust(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_TRUST] = value


trusting = click.option(
    "--trust-code",
    is_flag=True,
    expose_value=False,
    callback=_trust,
    help="Run the code that the recipe or run names, and remember it by its SHA-256.",
)
"""Adds ``--trust-code`` to a verb."""


def limited(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that limit the time of a command, which the function gets as `hours`, `cost` and `price`."""
    above_0 = click.FloatRange(0.0, min_open=True)
    for declare in (
        click.option("--price", type=above_0, help="Price of an hour of this machine, for --most-cost."),
        click.option("--most-cost", "cost", type=above_0, help="Save and stop before this is spent; needs --price."),
        click.option("--most-hours", "hours", type=above_0, help="Save and stop within this many hours."),
    ):
        function = declare(function)
    return function


@contextlib.contextmanager
def only_answers_on_stdout(active: bool) -> Iterator[None]:
    """While active, only `print_json` writes to standard output; all else, native code's output too, goes to stderr."""
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
    """Prints one JSON value; NaN and infinity are refused."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2), file=_answers)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Collection[str] = ()) -> None:
    """Prints a table, wrapped to the width of a terminal; cells of the columns `whole` are not wrapped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as captured:
        console.print(table)
    click.echo(captured.get(), nl=False)
