"""List methods, settings and the members of every family.

With FAMILY, only that one: recipe (methods), setting, objective, advantage, reward, tasks, ... Names are what recipes
and the command line call them by. The options leave out what does not fit all of them.

    posttrain list recipe
    posttrain list --area sft_rl
    posttrain list --row 267
    posttrain list recipe --text critic
    posttrain list objective --json
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from posttrain.cli._output import print_json, print_table, verb

if TYPE_CHECKING:
    from posttrain.recipes.catalogue import Entry

COLUMNS: dict[str, "Callable[[Entry], str]"] = {
    "name": lambda entry: entry.name,
    "family": lambda entry: entry.family,
    "area": lambda entry: entry.area,
    "parent": lambda entry: entry.parent,
    "setting": lambda entry: entry.setting,
    "rows": lambda entry: " ".join(map(str, entry.rows)),
    "source": lambda entry: entry.source.removeprefix("https://"),
    "summary": lambda entry: entry.summary,
}

WIDE = 140
"""Characters of a terminal in which all columns can be read."""


@verb
@click.argument("family", required=False)
@click.option("--area", help="Methods of one area: policy_gradient, sft_rl, agents, ...")
@click.option("--row", type=int, help="What covers a row of the catalogue of methods.")
@click.option("--text", help="What has this text in its name, source or summary.")
def command(family: str | None, area: str | None, row: int | None, text: str | None, as_json: bool) -> None:
    """Read docstrings, import nothing."""
    from posttrain.recipes.catalogue import entries, select

    found = select(entries(family), area=area, text=text, row=row)
    if as_json:
        print_json([asdict(entry) for entry in found])
    elif found:
        columns = {name: read for name, read in COLUMNS.items() if name in _columns(found)}
        print_table(list(columns), [[read(entry) for read in columns.values()] for entry in found])
    else:
        click.echo("nothing fits; posttrain list shows all there is", err=True)


def _columns(found: "list[Entry]") -> list[str]:
    """What says something about these entries, as far as the terminal is wide enough for it."""
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE:
        return ["name", "family", "source", "summary"] if len({e.family for e in found}) > 1 else ["name", "summary"]
    return [name for name, read in COLUMNS.items() if name in ("name", "summary") or len(set(map(read, found))) > 1]
