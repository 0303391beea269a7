"""What MkDocs builds beside the pages in docs/: those that are made from code and measurements. A hook of mkdocs.yml.

    index.md, CONTRIBUTING.md, AGENTS.md    the files of the same names (README.md) at the top of the repository
    methods/<area>/README.md, <name>.md     `posttrain.recipes.pages`
    components/<family>.md, settings.md     likewise
    experiments/<area>.md, pictures/        docs/measured/experiments

A page of docs/ has ``<!-- built: methods -->``, or ``experiments``, where the list of those pages is to stand.
"""

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parent))  # MkDocs does not run hooks where their neighbours are found

from figures import picture

from posttrain.recipes.pages import area_page, family_page, method_page, settings_page
from posttrain.recipes.pages.experiments import Experiment, all_experiments, section
from posttrain.recipes.pages.markdown import inline, source, table
from posttrain.recipes.pages.parts import known_families, listed

ROOT: Final = Path(__file__).resolve().parents[1]
AT_THE_TOP: Final = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "AGENTS.md": "AGENTS.md"}
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
IMAGE: Final = re.compile(r"(!\[[^\]]*\]\()docs/")
FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
NO_METHOD: Final = "diagnostics"
"""Area of experiments that are about no method."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made into the navigation."""
    areas = {area: sorted(names) for area, names in methods_by_area().items()}
    shelves = [
        {titled(area): [f"methods/{area}/README.md", *(f"methods/{area}/{name}.md" for name in names)]}
        for area, names in areas.items()
    ]
    extend(config, "Methods", shelves)
    extend(config, "Components", [{titled(folder): f"components/{folder}.md"} for folder in family_folders()])
    extend(config, "Measured", [{titled(area): f"experiments/{area}.md"} for area in experiments_by_area()])
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    extend(config, "Decisions", [f"decisions/{name}" for name in ("README.md", *decisions)])
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for path, content in made().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the lists, and lead links to the code to the pages that are made from it."""
    for name, rows in (("methods", methods_table), ("experiments", experiments_table)):
        markdown = markdown.replace(f"<!-- built: {name} -->", rows())
    parts = FENCE.split(markdown)
    parts[::2] = [relinked(text, page.file.src_uri) for text in parts[::2]]
    return "".join(parts)


def made() -> dict[str, str]:
    """The text of every page that is made, by its path in the site."""
    pages = {uri: (ROOT / name).read_text(encoding="utf-8") for uri, name in AT_THE_TOP.items()}
    pages["settings.md"] = settings_page()
    for area, names in methods_by_area().items():
        pages[f"methods/{area}/README.md"] = area_page(area)
        pages |= {f"methods/{area}/{name}.md": method_page(name, pictures=True) for name in names}
    for folder, family in family_folders().items():
        pages[f"components/{folder}.md"] = family_page(family)
    for area, experiments in experiments_by_area().items():
        blocks = [block for e in experiments for block in section(e, level=2, pictures="pictures")]
        pages[f"experiments/{area}.md"] = "\n\n".join([f"# Experiments: {titled(area).lower()}", *blocks]) + "\n"
    for experiment in all_experiments():
        if experiment.contenders:
            pages[f"experiments/pictures/{experiment.name}.svg"] = picture(experiment)
    return pages


def methods_by_area() -> dict[str, list[str]]:
    """The names of the methods of each area."""
    areas: dict[str, list[str]] = {}
    for entry in sorted(listed("recipe"), key=lambda entry: (entry.area, entry.name)):
        areas.setdefault(entry.area, []).append(entry.name)
    return areas


def family_folders() -> dict[str, str]:
    """The name of each family by that of its folder."""
    return {folder.name: name for name, folder in known_families().items() if name not in ("recipe", "setting")}


def experiments_by_area() -> dict[str, list[Experiment]]:
    """Experiments by the area of the method whose row they share, in alphabetical order."""
    area_of = {row: entry.area for entry in listed("recipe") for row in entry.rows}
    areas: dict[str, list[Experiment]] = {}
    for experiment in all_experiments():
        area = next((area_of[row] for row in experiment.rows if row in area_of), NO_METHOD)
        areas.setdefault(area, []).append(experiment)
    return dict(sorted(areas.items()))


def methods_table() -> str:
    """All methods, area by area."""
    blocks = []
    entries = {entry.name: entry for entry in listed("recipe")}
    for area, names in methods_by_area().items():
        rows = [
            (f"[`{name}`](methods/{area}/{name}.md)", inline(entries[name].summary), source(entries[name].source))
            for name in names
        ]
        blocks += [f"### {titled(area)}", table(("Method", "What it is", "Paper"), rows)]
    return "\n\n".join(blocks)


def experiments_table() -> str:
    """All experiments, each a link."""
    rows = [
        (titled(area), ", ".join(f"[{e.title}](experiments/{area}.md#{slug(e.title)})" for e in experiments))
        for area, experiments in experiments_by_area().items()
    ]
    return table(("Area", "Experiments"), rows)


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def titled(name: str) -> str:
    """The name of a folder as a title."""
    words = [word.upper() if word in ("sft", "rl") else word for word in name.split("_")]
    return (title := " ".join(words))[:1].upper() + title[1:]


def extend(config: MkDocsConfig, section_name: str, entries: list[Any]) -> None:
    """Put entries at the end of a section of the navigation."""
    assert config.nav is not None, "mkdocs.yml has a nav"
    next(part for part in config.nav if section_name in part)[section_name].extend(entries)


def relinked(text: str, uri: str) -> str:
    """A page's text with the links of the repository turned into those of the site."""
    top = uri in AT_THE_TOP
    folder = ROOT if top else (ROOT / "docs" / uri).parent

    def lead(found: re.Match[str]) -> str:
        label, path, anchor = found[1], found[2], found[3] or ""
        target = page_of(Path(os.path.normpath(folder / path)).relative_to(ROOT))
        if target is None:  # a file that the site does not have
            return label
        return f"[{label}]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{anchor})"

    text = LINK.sub(lead, text)
    return IMAGE.sub(r"\1", text) if top else text


def page_of(path: Path) -> str | None:
    """The page of the site that a file or folder of the repository is; None where it has none."""
    match path.parts:
        case ("docs", *rest):
            return "/".join(rest)
        case ("src", "posttrain", "methods", area, name):
            return f"methods/{area}/{Path(name).stem}.md"
        case ("src", "posttrain", "methods", area):
            return f"methods/{area}/README.md"
        case ("src", "posttrain", "components", family, *_):
            return f"components/{family}.md"
    return next((uri for uri, name in AT_THE_TOP.items() if path == Path(name)), None)
