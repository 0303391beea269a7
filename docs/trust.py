"""Write docs/trust.md from what was measured: every `docs/measured/trust/PART.json`, with `PART.md` before its tables.

.venv/bin/python docs/trust.py            write what is out of date
.venv/bin/python docs/trust.py --check    say whether it is out of date, and exit with 1 if it is

A PART.json has ``title``, ``command`` (which writes it anew) and ``tables``, each with ``columns``, ``rows`` and,
where one is needed, a ``caption``.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pages import table, write_or_check

ROOT = Path(__file__).resolve().parents[1]
PARTS, PAGE = ROOT / "docs" / "measured" / "trust", ROOT / "docs" / "trust.md"
INTRODUCTION = """# Trust

Nothing escapes, nothing hangs, nothing is lost, nothing is silently wrong: the attacks and their results. The
tables are measured; the command above each one measures it again. This page is written by `docs/trust.py`.
"""


def page(parts: Path) -> str:
    """The page that the measurements of a folder make."""
    return "\n".join([INTRODUCTION, *(line for path in sorted(parts.glob("*.json")) for line in section(path))])


def section(path: Path) -> Iterator[str]:
    """The lines of one part: its prose, how to measure it, its tables."""
    part = json.loads(path.read_text(encoding="utf-8"))
    prose = path.with_suffix(".md")
    yield f"## {part['title']}\n"
    if prose.is_file():
        yield prose.read_text(encoding="utf-8").rstrip("\n") + "\n"
    yield f"```text\n$ {part['command']}\n```\n"
    for measured in part["tables"]:
        if "caption" in measured:
            yield f"{measured['caption']}\n"
        yield from table(measured["columns"], measured["rows"])


def main(arguments: Sequence[str]) -> int:
    """Write or check; 0 when the page is, or has been brought, up to date."""
    return write_or_check(arguments, __doc__, PAGE, lambda: page(PARTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
