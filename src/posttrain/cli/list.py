"""List the recipes and the members of every family.

With FAMILY, only that one: recipe, objective, advantage, reward, tasks, ... Names are what recipes and the command line
call them by.

    posttrain list recipe
    posttrain list objective --json
"""

from dataclasses import asdict

import click

from posttrain.cli._output import print_json, print_table, verb


@verb
@click.argument("family", required=False)
def command(family: str | None, as_json: bool) -> None:
    """Read docstrings, import nothing."""
    from posttrain.recipe.catalogue import entries

    found = entries(family)
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    rows = [(e.name, e.family, " ".join(map(str, e.rows)), e.source, e.summary) for e in found]
    print_table(("name", "family", "rows", "source", "summary"), rows)
