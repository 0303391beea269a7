"""Write what was measured into docs/scale.md, between its marks: every `docs/measured/cluster/PART.json`.

.venv/bin/python docs/scale.py            write what is out of date
.venv/bin/python docs/scale.py --check    say whether it is out of date, and exit with 1 if it is

Parts are those of docs/trust.py.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from pages import write_or_check
from trust import section

DOCS = Path(__file__).parent
PARTS, PAGE = DOCS / "measured" / "cluster", DOCS / "scale.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"


def page(parts: Path, text: str) -> str:
    """The text with the measurements of a folder between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [line for path in sorted(parts.glob("*.json")) for line in section(path)]
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"])


def main(arguments: Sequence[str]) -> int:
    """Write or check; 0 when the page is, or has been brought, up to date."""
    return write_or_check(arguments, __doc__, PAGE, lambda: page(PARTS, PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
