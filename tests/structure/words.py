"""Finds words in names, texts and pages that docs/glossary.md does not allow."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
OWN = (ROOT / "tests/structure/words.py", ROOT / "tests/structure/test_words.py")
"""They have forbidden words as examples."""
HEADING = "## Words that are not used"
HEADER = "| forms | say | allowed |"
_CELLS = re.compile(r"(?<!\\)\|")
_QUOTED = re.compile(r"`([^`]+)`")
_WORDS_OF_A_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAMES_OF_WORDS = re.compile(r"\w*[a-z0-9][A-Z]\w*|\w*[A-Z][A-Z][a-z]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Forms of a word that are not used, and what is used instead."""

    forms: tuple[str, ...]
    say: str
    files: tuple[str, ...] = ()
    """Patterns of the paths where the forms are allowed."""
    phrases: tuple[str, ...] = ()
    """Expressions that may contain a form."""

    def found(self, text: str) -> Iterator[re.Match[str]]:
        """Places in a text where a form is used outside of the allowed phrases."""
        allowed = [match.span() for phrase in self.phrases for match in _expression(phrase).finditer(text)]
        for form in self.forms:
            for match in _expression(form).finditer(text):
                if not any(start <= match.start() and match.end() <= end for start, end in allowed):
                    yield match


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A forbidden word in a file."""

    place: str
    word: str
    say: str

    def __str__(self) -> str:
        """One line of the law's message."""
        return f"{self.place}: '{self.word}'; say: {self.say}"


@cache
def _expression(form: str, *, ignore_case: bool = True) -> re.Pattern[str]:
    """A form as whole words, in any case; its spaces may be line breaks in a text."""
    spaced = form.replace(" ", r"\s+")
    return re.compile(rf"(?<!\w)(?:{spaced})(?!\w)", re.IGNORECASE if ignore_case else 0)


def read_rules(page: str) -> list[Rule]:
    """The rules of the glossary's table."""
    table = page.partition(HEADING)[2].partition(HEADER)[2]
    rules = []
    for line in table.strip().splitlines():
        if not line.startswith("|"):
            break
        cells = [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1]]
        if set(cells[0]) <= set("-"):
            continue
        forms, allowed = _QUOTED.findall(cells[0]), _QUOTED.findall(cells[2])
        files = tuple(text for text in allowed if "/" in text)
        phrases = tuple(text for text in allowed if "/" not in text)
        rules.append(Rule(forms=tuple(forms), say=cells[1], files=files, phrases=phrases))
    return rules


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every name, comment and string of a program; a name as separate words."""
    old_names = set(_lines_of_old_names(source))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[0] in old_names:
            continue
        if token.type == tokenize.NAME:
            yield token.start[0], " ".join(_WORDS_OF_A_NAME.findall(token.string))
        elif token.type == tokenize.COMMENT or "STRING" in tokenize.tok_name[token.type]:
            yield token.start[0], token.string.replace("_", " ")


def _lines_of_old_names(source: str) -> Iterator[int]:
    """Lines of the tables of renamed settings, which hold the names that are refused."""
    for node in ast.walk(ast.parse(source)):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id.lstrip("_").startswith("RENAMED") for target in targets):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, comment and name of a test; what tests hold as data is any text."""
    lines = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines.add(first.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        docstring = token.type == tokenize.STRING and token.start[0] in lines
        if docstring or token.type == tokenize.COMMENT:
            yield token.start[0], token.string.replace("_", " ")


def texts_in(text: str, path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the parts of a file that the rules hold for."""
    if path.suffix == ".py":
        yield from (texts_of if path.is_relative_to(root / "src") else prose_of)(text)
        return
    if path == GLOSSARY:
        text = text.partition(HEADING)[0]
    yield 1, text.replace("_", " ")


def may_have(text: str, forms: str) -> bool:
    """Whether a form is anywhere in a file, data included. Most files have none, and to parse them takes the time."""
    plain = text.replace("_", " ")
    names = (" ".join(_WORDS_OF_A_NAME.findall(name)) for name in {*_NAMES_OF_WORDS.findall(plain)})
    expression = _expression(forms, ignore_case=False)  # which is several times as fast
    return any(expression.search(one.lower()) for one in (plain, "\n|\n".join(names)))


def uses(path: Path, rules: Sequence[Rule], root: Path = ROOT) -> Iterator[Use]:
    """Every forbidden word of a file."""
    name = path.relative_to(root).as_posix()
    valid = [rule for rule in rules if not any(fnmatchcase(name, pattern) for pattern in rule.files)]
    forms = "|".join(form for rule in valid for form in rule.forms)
    whole, any_form = path.read_text(encoding="utf-8"), _expression(forms)
    if not may_have(whole, forms):
        return
    for line, text in texts_in(whole, path, root):
        if not any_form.search(text):
            continue
        found = [(match, rule.say) for rule in valid for match in rule.found(text)]
        for match, say in sorted(found, key=lambda item: item[0].start()):
            at = line + text.count("\n", 0, match.start())
            yield Use(place=f"{name}:{at}", word=" ".join(match[0].split()), say=say)


def files() -> list[Path]:
    """The files that the rules hold for."""
    source = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".html", ".js")]
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md"))]
    others = [path for folder in ("tests", "benchmarks", "docs", "setup") for path in (ROOT / folder).rglob("*.py")]
    ours = [path for path in others if path not in OWN]
    return sorted([*source, *pages, *ours])
