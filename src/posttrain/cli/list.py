"""List the recipes and the members of every family.

With FAMILY, only that one: recipe, objective, advantage, reward, tasks, ... Names are what recipes and the command line
call them by.

    posttrain list recipe
    posttrain list recipe --area credit
    posttrain list --text "length" --json
    posttrain list --row 267
"""

from dataclasses import asdict

import click

from posttrain.cli._output import print_json, print_table, verb


@verb
@click.argument("family", required=False)
@click.option("--area", help="Only methods of this area: policy_gradient, credit, ...")
@click.option("--text", help="Only what has this text in its name, source or summary, in capitals or not.")
@click.option("--row", type=int, help="Only what covers this row of the catalogue of methods.")
def command(family: str | None, area: str | None, text: str | None, row: int | None, as_json: bool) -> None:
    """Read docstrings, import nothing."""
    from posttrain.recipe.catalogue import entries, select

    found = select(entries(family), area=area, text=text, row=row)
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    rows = [(e.name, e.family, e.area, " ".join(map(str, e.rows)), e.source, e.summary) for e in found]
    print_table(("name", "family", "area", "rows", "source", "summary"), rows)
