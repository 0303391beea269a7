"""Print the resolved tree of a recipe as YAML.

RECIPE is the name of a recipe, FILE.py:FUNCTION, a YAML file, or the folder of a run. CHANGES are path=value pairs.
The output is a complete recipe; running it gives the same run.

    posttrain show grpo rollout.n=16 > mine.yaml
    posttrain run mine.yaml

With ``--page``, print the page of a method instead: what it changes, its formula, the sources of its numbers,
differences from its paper, measurements, and how to run it.

    posttrain show gigpo --page
"""

import sys

import click

from posttrain.cli._completion import complete_changes, complete_recipe
from posttrain.cli._output import print_json, reading_verb, trusting


@reading_verb
@trusting
@click.argument("recipe", shell_complete=complete_recipe)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@click.option("--page", is_flag=True, help="Print the page of a method.")
def command(recipe: str, changes: tuple[str, ...], page: bool, as_json: bool) -> None:
    """Resolves and prints."""
    if page:
        _print_page(recipe, changes, as_json=as_json)
        return
    from posttrain.recipes.files import find_recipe, to_yaml
    from posttrain.recipes.overrides import to_tree

    resolved = find_recipe(recipe, changes)
    if as_json:
        print_json(to_tree(resolved))
    else:
        click.echo(to_yaml(resolved), nl=False)


def _print_page(method: str, changes: tuple[str, ...], *, as_json: bool) -> None:
    """Prints a method's page: formatted in a terminal, as Markdown into a file or a pipe."""
    from posttrain.errors import UserError
    from posttrain.recipes.pages import method_page

    if changes:
        raise UserError(f"a page is about a method on its default setting; leave out {' '.join(changes)}")
    name = method.replace("-", "_")
    text = method_page(name)
    if as_json:
        print_json({"method": name, "page": text})
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        from posttrain.recipes.pages.markdown import without_local_links

        Console().print(Markdown(without_local_links(text), code_theme="ansi_dark"))
    else:
        click.echo(text, nl=False)
