"""What the scripts that write a page of docs/ share: tables, and writing a page or checking that it is up to date."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


def table(columns: Sequence[Any], body: Any) -> Iterator[str]:
    """The lines of a table; none where it is empty."""
    lines = list(body)
    if lines:
        yield row(columns)
        yield "|" + "---|" * len(columns)
        yield from map(row, lines)
        yield ""


def row(values: Sequence[Any]) -> str:
    """A line of a table."""
    cells = ("" if value is None else str(value).replace("|", "\\|").replace("\n", " ") for value in values)
    return f"| {' | '.join(cells)} |"


def write_or_check(arguments: Sequence[str], usage: str | None, page: Path, made: Callable[[], str]) -> int:
    """Write a page, or check it with ``--check``; 0 when it is, or has been brought, up to date."""
    if list(arguments) not in ([], ["--check"]):
        print(usage, file=sys.stderr)
        return 2
    wanted = made()
    if page.exists() and page.read_text(encoding="utf-8") == wanted:
        return 0
    name = f"docs/{page.name}"
    if arguments:
        print(
            f"{name} is out of date; run: .venv/bin/python {name.removesuffix('.md').replace('-', '_')}.py",
            file=sys.stderr,
        )
        return 1
    page.write_text(wanted, encoding="utf-8")
    print(f"wrote {name}")
    return 0
