"""Print the resolved tree of a recipe as YAML.

RECIPE is the name of a recipe, FILE.py:FUNCTION, a YAML file, or the folder of a run. CHANGES are path=value pairs.
What is printed is a whole recipe; running it gives the same run.

    posttrain show grpo rollout.n=16 > mine.yaml
    posttrain run mine.yaml
"""

import click

from posttrain.cli._output import print_json, verb


@verb
@click.argument("recipe")
@click.argument("changes", nargs=-1)
def command(recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Resolve and print."""
    from posttrain.recipe.files import find_recipe, to_yaml
    from posttrain.recipe.overrides import to_tree

    resolved = find_recipe(recipe, changes)
    if as_json:
        print_json(to_tree(resolved))
    else:
        click.echo(to_yaml(resolved), nl=False)
