"""Docstrings and tables as Markdown, for pages generated from code."""

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

PAPER: Final = re.compile(r"arXiv:\s?(\d{4}\.\d{4,5})")
_CODE: Final = re.compile(r"(``.+?``|`.+?`)", re.DOTALL)
_LIST: Final = re.compile(r"([-*]|\d+\.) ")
_SECTION: Final = re.compile(r"^([A-Z]\w+(?: \w+)?):\s")


def paragraphs(docstring: str) -> list[str]:
    """The paragraphs of a docstring, each with its own indentation."""
    return [block for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)) if block.strip()]


def section_of(paragraph: str) -> str:
    """The label of a paragraph, as in ``Differs: ...``; empty if it has none."""
    found = _SECTION.match(paragraph)
    return found[1] if found else ""


def without_section(paragraph: str) -> str:
    """A paragraph without its label, as a complete sentence."""
    text = paragraph.partition(":")[2].strip()
    return text[:1].upper() + text[1:]


def markdown(docstring: str) -> str:
    """A docstring as Markdown: indented blocks are code, paragraphs are one line, papers are links."""
    return "\n\n".join(map(block, paragraphs(docstring)))


def block(text: str) -> str:
    """One of a docstring's `paragraphs` as Markdown: text, a list, or code."""
    lines = text.splitlines()
    code = next((i for i, line in enumerate(lines) if line.startswith("    ")), len(lines))
    if code == 0:
        return "```text\n" + inspect.cleandoc(f"\n{text}") + "\n```"
    if _LIST.match(lines[0]):
        items = re.split(r"\n(?=(?:[-*]|\d+\.) )", text)
        return "\n".join(inline(" ".join(item.split())) for item in items)
    if all(line.startswith("    ") for line in lines[code:]) and code < len(lines):
        return "\n\n".join((block("\n".join(lines[:code])), block("\n".join(lines[code:]))))
    return inline(" ".join(text.split()))


def inline(text: str) -> str:
    """One line of a docstring: code in single backticks, all other marks of Markdown escaped."""
    parts = _CODE.split(text)
    return "".join(_code(part) if i % 2 else _plain(part) for i, part in enumerate(parts))


def _code(text: str) -> str:
    """Code between single backticks."""
    return f"`{text.strip('`')}`"


def _plain(text: str) -> str:
    """Text with its marks escaped and its papers linked."""
    escaped = re.sub(r"([*<])", lambda mark: {"*": r"\*", "<": "&lt;"}[mark[1]], text)
    return PAPER.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", escaped)


def source(text: str) -> str:
    """A source as a link, if it has an address."""
    if PAPER.fullmatch(text):
        return _plain(text)
    return f"<{text}>" if text.startswith("http") else text


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; empty if it has no rows."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if cells else ""


def without_local_links(page: str) -> str:
    """A page for a terminal: links to other pages are text, those to the network stay."""
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", page)
