"""Print what is different between two recipes: what a method is.

A and B are anything that `posttrain show` takes: names of recipes, FILE.py:FUNCTION, YAML files, folders of runs.
Every line is a path as it is written on the command line, with what it holds in A and in B. The names of the recipes
are not compared, and settings at their defaults are not printed.

    posttrain diff grpo dr_grpo
    posttrain diff runs/grpo-1 runs/grpo-2
"""

import click

from posttrain.cli._output import print_json, verb

SIGNS = {"changed": ("~", "yellow"), "added": ("+", "green"), "removed": ("-", "red")}


@verb
@click.argument("a")
@click.argument("b")
def command(a: str, b: str, as_json: bool) -> None:
    """Compare and print."""
    from posttrain.differences import differences
    from posttrain.recipe_files import find_recipe

    found = differences(find_recipe(a), find_recipe(b))
    if as_json:
        changes = [{"path": d.path, "change": d.change, "from": d.before, "to": d.after} for d in found]
        print_json({"a": a, "b": b, "changes": changes})
        return
    if not found:
        click.echo(f"{a} and {b} are the same recipe")
    width = max((len(d.path) for d in found), default=0)
    for d in found:
        sign, color = SIGNS[d.change]
        click.echo(f"{click.style(f'{sign} {d.path:<{width}}', fg=color)}  {d.text}")
