"""The page of a method and the index of an area.

A method's page has its changes to the parent, the formulas of the components that it sets, the source of each number,
inherited values that differ from its paper, its departures from the paper, its experiments, and how to run it on one's
own data.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.recipes.catalogue import Entry, recipe_modules
from posttrain.recipes.differences import Difference, essence, spell, value_at
from posttrain.recipes.overrides import override, resolve, to_tree
from posttrain.recipes.pages.experiments import all_experiments, section
from posttrain.recipes.pages.markdown import block, inline, paragraphs, section_of, source, table, without_section
from posttrain.recipes.pages.parts import (
    FORMULAS,
    Part,
    changes_of,
    function_of,
    known_families,
    listed,
    parts_of,
    parts_of_root,
)
from posttrain.recipes.tree import Recipe

SIGNS: Final = {"changed": "~", "added": "+", "removed": "-"}
OWN_DATA: Final = ("tasks=mine.jsonl", "model=path/to/model", "reward=./mine.py:score")
SHORT: Final = 72
"""Characters of a value that a table shows; `posttrain show` has all of it."""


def method_page(name: str, *, pictures: bool = False) -> str:
    """The page of a method, with links to the pictures of its experiments if `pictures` is set.

    Raises `UserError` for an unknown method.
    """
    methods = {entry.name: entry for entry in listed("recipe")}
    if name not in methods:
        raise UserError(f"no method named '{name}', so it has no page; {nearest(name, methods)}")
    entry = methods[name]
    found, recipe = changes_of(entry)
    parts = parts_of(found, recipe) if entry.parent else parts_of_root(recipe)
    docstring = function_of(name).__globals__["__doc__"] or ""
    sections = (
        *_head(entry, docstring),
        *_changes(entry, found, methods),
        *_formulas(entry, parts, methods),
        *_numbers(parts),
        *_inherited(entry, recipe),
        *_departures(entry, docstring, parts),
        *_experiments(entry, docstring, pictures=pictures),
        *_running(entry, recipe),
    )
    return "\n\n".join(sections) + "\n"


def area_page(area: str) -> str:
    """The index of the methods of an area."""
    rows = [
        (f"[`{e.name}`]({e.name}.md)", inline(e.summary), source(e.source)) for e in listed("recipe") if e.area == area
    ]
    return f"# {area.replace('_', ' ').capitalize()}\n\n{table(('Method', 'What it is', 'Paper'), rows)}\n"


def _head(entry: Entry, docstring: str) -> Iterator[str]:
    """Title, summary, facts, and the docstring's part on the paper."""
    first, *rest = paragraphs(docstring)
    yield f"# {entry.name}"
    yield inline(" ".join(first.split()))
    facts = [
        ("Paper", source(entry.source)),
        ("Area", f"[{entry.area}](README.md)"),
        ("Default setting", f"[`{entry.setting}`](../../settings.md#{entry.setting})" if entry.setting else ""),
        ("Rows", ", ".join(map(str, entry.rows))),
        ("Code", f"`src/{recipe_modules()[entry.name].replace('.', '/')}.py`"),
    ]
    yield " · ".join(f"**{name}** {value}" for name, value in facts if value)
    yield from (block(text) for text in rest if section_of(text) not in ("Differs", "Measured here"))


def _changes(entry: Entry, found: Sequence[Difference], methods: dict[str, Entry]) -> Iterator[str]:
    """The differences from the parent, in the syntax of the command line."""
    yield "## What it changes"
    if not entry.setting:
        yield f"It is a whole recipe: `posttrain show {entry.name}`."
        return
    if not entry.parent:
        yield f"It is a root: other methods are differences from it. Whole: `posttrain show {entry.name}`."
        if not found:
            return
    base = _link(entry.parent, entry, methods) if entry.parent else "its setting"
    if not found:
        yield f"On its default setting it is the same as {base}."
        return
    yield f"In {base}, on the setting `{entry.setting}`:"
    width = max(len(difference.path) for difference in found)
    yield "\n".join(["```text", *(f"{SIGNS[d.change]} {d.path:<{width}}  {d.text}" for d in found), "```"])
    if entry.changes:
        changed = ", ".join(f"`{path}`" for path in entry.changes)
        yield f"Everything else of a setting is kept. Of a setting's values, these are a part of the method: {changed}."


def _formulas(entry: Entry, parts: Sequence[Part], methods: dict[str, Entry]) -> Iterator[str]:
    """The docstrings of the components with formulas, and a list of the others."""
    yield "## Formula"
    members = {(part.family, part.value.kind): part for part in parts if part.family}
    shown = [part for (family, _), part in members.items() if family in FORMULAS]
    if not shown and entry.parent:
        yield f"Loss and advantage are those of {_link(entry.parent, entry, methods)}."
    for part in shown:
        yield f"### {part.family.replace('_', ' ').capitalize()}: {_member(part)}"
        yield from (block(text) for text in paragraphs(part.docstring) if section_of(text) != "Differs")
    others = [part for (family, _), part in members.items() if family not in FORMULAS]
    if others:
        yield "### Other components"
        summaries = {(e.family, e.name): e.summary for part in others for e in listed(part.family)}
        rows = [
            (f"`{part.path}`", _member(part), inline(summaries.get((part.family, part.value.kind), "")))
            for part in others
        ]
        yield table(("Path", "Component", "What it is"), rows)


def _numbers(parts: Sequence[Part]) -> Iterator[str]:
    """Every value that the method sets, with its field's docstring."""
    rows = [
        (f"`{path}`", f"`{_short(value)}`", inline(" ".join(source.split())))
        for p in parts
        for path, value, source in p.numbers()
    ]
    if rows:
        yield "## Where the numbers come from"
        yield "The fields of what it sets, defaults included."
        yield table(("Setting", "Value", "Meaning, unit, source"), rows)


def _inherited(entry: Entry, recipe: Recipe) -> Iterator[str]:
    """Values of the parent that differ from the paper."""
    if not entry.inherited:
        return
    yield f"## Inherited from `{entry.parent}`, otherwise in the paper"
    tree = to_tree(recipe)
    rows = []
    for path, paper in entry.inherited.items():
        try:
            value = f"`{_short(spell(essence(value_at(recipe, tuple(resolve(tree, path))))))}`"
        except (UserError, LookupError, AttributeError):  # a path that is not in its default setting
            value = "not set"
        rows.append((f"`{path}`", value, inline(paper)))
    yield table(("Setting", "Here", "The paper"), rows)


def _departures(entry: Entry, docstring: str, parts: Sequence[Part]) -> Iterator[str]:
    """Departures of the method and its components from their papers."""
    yield "## Where it departs from the paper"
    own = [text for text in paragraphs(docstring) if section_of(text) == "Differs"]
    yield from (block(without_section(text)) for text in own)
    members = {part.family + part.value.kind: part for part in parts if part.family in FORMULAS}
    stated = False
    for part in members.values():
        for text in paragraphs(part.docstring):
            if section_of(text) == "Differs":
                stated = True
                yield f"{_member(part)}: {block(without_section(text))}"
    if not own and not stated:
        yield f"`{entry.name}` states none."


def _experiments(entry: Entry, docstring: str, *, pictures: bool) -> Iterator[str]:
    """Measured results, in a sentence and in tables."""
    measured = [text for text in paragraphs(docstring) if section_of(text) == "Measured here"]
    own = [experiment for experiment in all_experiments() if set(experiment.rows) & set(entry.rows)]
    if not measured and not own:
        return
    yield "## Experiment"
    yield from (block(without_section(text)).replace(" (docs/experiments.md)", "") for text in measured)
    for experiment in own:
        yield from section(experiment, level=3, pictures="../../experiments/pictures" if pictures else None)


def _running(entry: Entry, recipe: Recipe) -> Iterator[str]:
    """Commands that run it, also on one's own recipe."""
    yield "## Run it"
    lines = [f"posttrain run {entry.name}"]
    if entry.parent:
        lines.append(f"posttrain diff {entry.name}")
    yield "\n".join(["```text", *lines, "```"])
    commands = [f"posttrain run {entry.name} {' '.join(own)}"] if (own := _own_data(recipe)) else []
    if entry.setting:
        commands += [
            f"posttrain show {entry.setting} > mine.yaml    # put in your tasks, model, reward and sizes",
            f"posttrain run {entry.name} setting=mine.yaml",
        ]
    if commands:
        yield "On one's own data:"
        yield "\n".join(["```text", *commands, "```"])


def _own_data(recipe: Recipe) -> list[str]:
    """Changes that set one's own data, model and reward; none if more than these are needed."""
    policy = recipe.models.get("policy")
    if policy is None or policy.source == "new" or any(getattr(s, "tasks", None) for s in recipe.stages.values()):
        return []
    return [change for change in OWN_DATA if _applies(recipe, change)]


def _applies(recipe: Recipe, change: str) -> bool:
    """Whether a recipe has the path of a change."""
    try:
        override(recipe, [change])
    except UserError:
        return False
    return True


def _link(name: str, entry: Entry, methods: dict[str, Entry]) -> str:
    """A link from a method's page to that of another."""
    other = methods[name]
    folder = "" if other.area == entry.area else f"../{other.area}/"
    return f"[`{name}`]({folder}{name}.md)"


def _member(part: Part) -> str:
    """A link to a component in the page of its family."""
    kind = part.value.kind
    if "." in kind:
        return f"`{kind}`"
    return f"[`{kind}`](../../components/{known_families()[part.family].name}.md#{kind})"


def _short(value: str) -> str:
    """A value shortened for a table."""
    return value if len(value) <= SHORT else f"{value[: SHORT - 4]} ..."
