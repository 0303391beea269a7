"""Print the resolved tree of a recipe as YAML.

RECIPE is the name of a recipe, FILE.py:FUNCTION, a YAML file, or the folder of a run. CHANGES are path=value pairs.
What is printed is a whole recipe; running it gives the same run.

    posttrain show grpo rollout.n=16 > mine.yaml
    posttrain run mine.yaml

With ``--page``, print the page of a method instead: what it changes, its formula, where its numbers come from, where it
departs from its paper, what was measured, and how to run it.

    posttrain show gigpo --page
"""

import sys

import click

from posttrain.cli._output import print_json, verb


@verb
@click.argument("recipe")
@click.argument("changes", nargs=-1)
@click.option("--page", is_flag=True, help="Print the page of a method.")
def command(recipe: str, changes: tuple[str, ...], page: bool, as_json: bool) -> None:
    """Resolve and print."""
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
    """Print a method's page: laid out for a terminal, as Markdown into a file or a pipe."""
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
