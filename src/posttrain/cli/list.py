"""List methods, settings and the members of every family.

With FAMILY, only that one: recipe (methods), setting, objective, advantage, reward, tasks, ... Names are those of
recipes and the command line. Entries must match all options. Columns, of which those are shown that differ and fit
(--json has all):

    name     what recipes and the command line call it
    family   what it is: recipe (a method), setting, or the kind of component
    area     of a method: what it is about
    parent   the method that it changes; posttrain diff NAME prints the difference
    setting  what a method is tried on where no other is given
    rows     its numbers in the catalogue of published methods
    source   the paper
    summary  what it is, in a sentence

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

from posttrain.cli._completion import complete_family
from posttrain.cli._output import listing_verb, print_json, print_table

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
"""Width of a terminal, in characters, at which all columns are printed."""


@listing_verb
@click.argument("family", required=False, shell_complete=complete_family)
@click.option("--area", help="Methods of one area: policy_gradient, sft_rl, agents, ...")
@click.option("--row", type=int, help="Entries that cover a row of the catalogue of methods.")
@click.option("--text", help="Entries with this text in name, source or summary.")
def command(family: str | None, area: str | None, row: int | None, text: str | None, as_json: bool) -> None:
    """Reads docstrings without importing."""
    from posttrain.recipes.catalogue import entries, select

    found = select(entries(family), area=area, text=text, row=row)
    if as_json:
        print_json([asdict(entry) for entry in found])
    elif found:
        columns = {name: read for name, read in COLUMNS.items() if name in _columns(found)}
        rows = [[read(entry) for read in columns.values()] for entry in found]
        print_table(list(columns), rows, whole=["name", "family"])
        if sys.stdout.isatty():
            click.secho(f"{len(found)} entries; posttrain list --help explains the columns", dim=True, err=True)
    else:
        click.echo("nothing matches; posttrain list prints all entries", err=True)


def _columns(found: "list[Entry]") -> list[str]:
    """Columns whose values differ among these entries; fewer on a narrow terminal."""
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE:
        return ["name", "family", "summary"] if len({e.family for e in found}) > 1 else ["name", "summary"]
    return [name for name, read in COLUMNS.items() if name in ("name", "summary") or len(set(map(read, found))) > 1]
