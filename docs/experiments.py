"""Write docs/experiments.md: what each method came to against its parent, from the comparisons in docs/measured.

    posttrain compare RECIPES... --out folder      measures, and leaves comparison.json
    python docs/experiments.py                     makes the page of docs/measured/experiments/*.json

Each JSON file is what `posttrain compare` left, with the command that made it and the rows of the catalogue that it is
about; or, where a method was looked at by a script in docs/experiments, the script's JSON with a sentence.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
HEAD = """# Experiments

<!-- Made by docs/experiments.py from docs/measured/experiments; do not edit. -->

The smallest experiment of each method against its parent, on the bundled model or a tiny one that the recipe makes,
over five seeds or more. They ask whether the effect shows at this size at all; that it does not is an outcome too, and
says nothing about models a thousand times larger. Intervals are 95 % (Student's t, the seed is the unit, differences
within seeds: [compare](compare.md)).
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path in sorted((DOCS / "measured" / "experiments").glob("*.json")):
        parts.append("\n".join(section(path.stem, json.loads(path.read_text()))))
    return "\n".join(parts) + "\n"


def section(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """One experiment."""
    rows = ", ".join(map(str, found["rows"]))
    yield f"## {found.get('title', name)}\n"
    yield f"Row{'s' if len(found['rows']) > 1 else ''} {rows} of the catalogue. {found.get('said', '')}".strip() + "\n"
    yield f"```text\n{found['command']}\n```\n"
    if "contenders" not in found:
        yield table(found["columns"], found["table"])
        return
    columns = ["", "seeds", *found["measures"], "sampled tokens"]
    lines = []
    for row in found["contenders"]:
        cells = [cell(row[measure]) for measure in (*found["measures"], "sampled_tokens")]
        lines.append([f"`{row['contender']}`", str(len(row["seeds"])), *cells])
    yield table(columns, lines)


def cell(spread: Mapping[str, Any] | None) -> str:
    """A mean with its interval, and the difference from the first row."""
    if spread is None:
        return ""
    text = f"{spread['mean']:.4g}"
    if spread["interval"]:
        text += " [{:.4g}, {:.4g}]".format(*spread["interval"])
    other = spread.get("difference")
    if other and other["interval"]:
        low, high = other["interval"]
        told = f"{other['value']:+.3g} [{low:+.3g}, {high:+.3g}]"
        text += f"; **{told}**" if low > 0 or high < 0 else f"; {told}"
    return text


def table(columns: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    target = DOCS / "experiments.md"
    if "--check" in sys.argv:
        sys.exit(0 if target.read_text() == page() else f"{target.name} is out of date: run python docs/experiments.py")
    target.write_text(page())
