"""Write what was measured of rewards into docs/rewards.md, between its marks: docs/measured/rewards/*.json.

.venv/bin/python docs/rewards.py            write what is out of date
.venv/bin/python docs/rewards.py --check    say whether it is out of date, and exit with 1 if it is
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import table, write_or_check

DOCS = Path(__file__).resolve().parent
PARTS, PAGE = DOCS / "measured" / "rewards", DOCS / "rewards.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"
COLUMNS = (
    *("reward (row)", "texts", "right, not accepted", "wrong, accepted", "left out"),
    *("right", "half", "nothing", "twice", "finds", "of these wrong", "a second", "MiB"),
)


def page(parts: Path, text: str) -> str:
    """The text with the measurements of a folder between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    scored, cheats = (json.loads((parts / f"{name}.json").read_text()) for name in ("scored", "cheats"))
    lines = [*table(COLUMNS, map(row, scored)), *table(("row", "text", "reward", "of a right one"), map(cheat, cheats))]
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"])


def row(found: Mapping[str, Any]) -> Iterator[str]:
    """The cells of a reward."""
    name, _, number = found["name"].partition(" (")
    values = found["values"]
    yield f"`{name}`{f' ({number}' if number else ''}"
    yield f"{found['cases']:,}"
    yield found["false_negatives"]
    yield found["false_positives"]
    yield str(found["left_out"])
    for kind in ("demonstration", "half", "nothing", "twice"):
        yield f"{values[kind]:g}" if kind in values else ""
    yield str(len(found["finds"])) if found["searched"] else ""
    yield str(len(found["wrong_finds"])) if found["searched"] else ""
    yield f"{found['a_second']:,.0f}"
    yield f"{max(found['memory_mib'], 0):.0f}"


def cheat(found: Mapping[str, Any]) -> Sequence[str]:
    """The cells of a cheat."""
    return [str(found["row"]), found["name"], f"{found['pay']:.4g}", f"{found['most']:.4g}"]


def main(arguments: Sequence[str]) -> int:
    """Write or check; 0 when the page is, or has been brought, up to date."""
    return write_or_check(arguments, __doc__, PAGE, lambda: page(PARTS, PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
