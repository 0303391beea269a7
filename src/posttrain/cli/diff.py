"""Print what is different between two recipes: what a method is.

RECIPE and BASE are anything that `posttrain show` takes: names of recipes, FILE.py:FUNCTION, YAML files, folders of
runs. Every line is a path as it is written on the command line, with what it holds in BASE and in RECIPE: what to
change in BASE to get RECIPE. Names of recipes are not compared, and settings at their defaults are not printed.

    posttrain diff dr_grpo grpo
    posttrain diff runs/grpo-2 runs/grpo-1
"""

import click

from posttrain.cli._output import print_json, verb

SIGNS = {"changed": ("~", "yellow"), "added": ("+", "green"), "removed": ("-", "red")}


@verb
@click.argument("recipe")
@click.argument("base")
def command(recipe: str, base: str, as_json: bool) -> None:
    """Compare and print."""
    from posttrain.recipe.differences import differences
    from posttrain.recipe.files import find_recipe

    found = differences(find_recipe(base), find_recipe(recipe))
    if as_json:
        changes = [{"path": d.path, "change": d.change, "from": d.before, "to": d.after} for d in found]
        print_json({"recipe": recipe, "base": base, "changes": changes})
        return
    if not found:
        click.echo(f"{recipe} and {base} are the same recipe")
    width = max((len(d.path) for d in found), default=0)
    for d in found:
        sign, color = SIGNS[d.change]
        click.echo(f"{click.style(f'{sign} {d.path:<{width}}', fg=color)}  {d.text}")
