"""Print the difference between two recipes.

RECIPE and BASE are what `posttrain show` takes: names of recipes, FILE.py:FUNCTION, YAML files, folders of
runs. Without BASE a method is compared with its parent, both on the method's default setting. CHANGES are path=value
pairs for both, and setting=NAME puts both on another setting. Every line is a path, as on the command line, with
its values in BASE and in RECIPE: what to change in BASE to get RECIPE. Names of recipes are not compared, and settings
at their defaults are not printed.

    posttrain diff dr_grpo
    posttrain diff gigpo setting=mine.yaml
    posttrain diff dr_grpo grpo
    posttrain diff runs/grpo-2 runs/grpo-1
"""

import click

from posttrain.cli._completion import complete_recipe
from posttrain.cli._output import print_json, reading_verb, trusting

SIGNS = {"changed": ("~", "yellow"), "added": ("+", "green"), "removed": ("-", "red")}


@reading_verb
@trusting
@click.argument("recipe", shell_complete=complete_recipe)
@click.argument("others", nargs=-1, metavar="[BASE] [CHANGES]...", shell_complete=complete_recipe)
def command(recipe: str, others: tuple[str, ...], as_json: bool) -> None:
    """Compares and prints."""
    from posttrain.errors import UserError
    from posttrain.recipes.differences import differences
    from posttrain.recipes.files import find_parent, find_recipe

    changes = [text for text in others if "=" in text]
    bases = [text for text in others if "=" not in text]
    if len(bases) > 1:
        raise UserError(f"two recipes are compared, got {', '.join((recipe, *bases))}")
    base, other = (bases[0], find_recipe(bases[0], changes)) if bases else find_parent(recipe, changes)
    found = differences(other, find_recipe(recipe, changes))
    if as_json:
        listed = [{"path": d.path, "change": d.change, "from": d.before, "to": d.after} for d in found]
        print_json({"recipe": recipe, "base": base, "changes": listed})
        return
    if not found:
        click.echo(f"{recipe} and {base} are the same recipe")
    width = max((len(d.path) for d in found), default=0)
    for d in found:
        sign, color = SIGNS[d.change]
        click.echo(f"{click.style(f'{sign} {d.path:<{width}}', fg=color)}  {d.text}")
