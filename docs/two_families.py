"""Draw docs/pictures/two-families.svg from the recorded comparison: who reaches both families, and with how much.

    .venv/bin/python docs/two_families.py             # draws docs/measured/experiments/two_families.json
    .venv/bin/python docs/two_families.py FOLDER      # counts the demonstrations of its runs first, and stores them

FOLDER is that of the comparison, with its runs. A demonstration counts each time that it is learned from.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from figures import BOTTOM, COLOURS, LEFT, WIDTH, Axis, svg

from posttrain.runs.store import RunStore
from posttrain.statistics.intervals import mean

MEASURED: Final = Path(__file__).with_name("measured") / "experiments" / "two_families.json"
PICTURE: Final = Path(__file__).with_name("pictures") / "two-families.svg"
LETTERS: Final = "evaluation.accuracy_by_domain.letters"
SUMS: Final = "evaluation.accuracy_by_domain.sums"
DEMONSTRATIONS: Final = "demonstrations"
NAMES: Final = {"grpo setting=two_families": "GRPO", "sft setting=two_families": "SFT, then GRPO"}
"""Names of contenders by the start of their recipes; the others have the first word of theirs."""
SHADES: Final = (*COLOURS, "#0f766e", "#be185d")
TOP: Final = 40
ROW: Final = 34


def demonstrations_of(run: Path) -> int:
    """Demonstrations that a run has learned from, each as often as it has."""
    with RunStore.open(run, reading=True) as store:
        rows = [
            row
            for step in range(1, len(store.metrics()) + 1)
            for row in store.rollouts(step, ["sampled_logp", "dropped_reason"])
        ]
    return sum(row["sampled_logp"] is None and row["dropped_reason"] is None for row in rows)


def counted(found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The comparison with the demonstrations of each of its runs."""
    contenders = []
    for place, row in enumerate(found["contenders"]):
        runs = [next(folder.glob(f"{place}-*/seed_{seed}/*/recipe.yaml")).parent for seed in row["seeds"]]
        values = [float(demonstrations_of(run)) for run in runs]
        estimate = mean(values)
        spread = {"mean": estimate.value, "interval": list(estimate.interval), "values": values}
        contenders.append({**row, DEMONSTRATIONS: spread})
    return {**found, "contenders": contenders}


def draw(found: Mapping[str, Any]) -> str:
    """The picture: each contender by its accuracies of letters and of sums, and below a table of what it took."""
    rows = found["contenders"]
    plot = 330.0
    x, y = Axis([0.0, 100.0]), Axis([0.0, 100.0], start=TOP + plot, end=TOP)
    parts = [
        f'<text class="name" x="{LEFT}" y="20">held-out sums, % (taught by rewards only)</text>',
        f'<text class="name" text-anchor="end" x="{WIDTH - 24}" y="{TOP + plot + 34}">'
        "held-out letters, % (taught by demonstrations only)</text>",
        *y.levels(),
    ]
    for mark in x.marks:
        at = x.at(mark)
        parts.append(f'<path class="grid" d="M{at:.1f},{TOP}V{TOP + plot}"/>')
        parts.append(f'<text text-anchor="middle" x="{at:.1f}" y="{TOP + plot + 16}">{mark:.4g}</text>')
    for number, row in enumerate(rows):
        parts += _point(row, SHADES[number], x, y)
    base = rows[0][SUMS]["mean"]
    head = TOP + plot + 66
    columns = (180, 260, 335, 435, 550)
    titles = ("letters", "sums", "sums lost", "demonstrations", "tokens sampled/trained")
    parts += [f'<text class="name" x="{at}" y="{head}">{text}</text>' for at, text in zip(columns, titles, strict=True)]
    for number, row in enumerate(rows):
        level = head + 24 + ROW * number * 0.7
        cells = (
            f"{100 * row[LETTERS]['mean']:.1f} %",
            f"{100 * row[SUMS]['mean']:.1f} %",
            "" if not number else f"{100 * (base - row[SUMS]['mean']):+.1f} points",
            f"{row[DEMONSTRATIONS]['mean']:,.0f}",
            f"{row['sampled_tokens']['mean'] / 1000:,.0f}k / {row['trained_tokens']['mean'] / 1000:,.0f}k",
        )
        parts.append(f'<circle cx="{LEFT + 6}" cy="{level - 4:.1f}" r="5" fill="{SHADES[number]}"/>')
        parts.append(f'<text x="{LEFT + 18}" y="{level:.1f}">{escape(name_of(row["contender"]))}</text>')
        parts += [f'<text x="{at}" y="{level:.1f}">{text}</text>' for at, text in zip(columns, cells, strict=True)]
    return svg(parts, head + 24 + ROW * len(rows) * 0.7 + BOTTOM / 2, found["title"])


def _point(row: Mapping[str, Any], colour: str, x: Axis, y: Axis) -> list[str]:
    """The seeds of a contender as dots, and a cross of the two means with their intervals."""
    pairs = zip(row[LETTERS]["values"], row[SUMS]["values"], strict=True)
    parts = [
        f'<circle cx="{x.at(100 * letters):.1f}" cy="{y.at(100 * sums):.1f}" r="3" fill="{colour}" fill-opacity=".5"/>'
        for letters, sums in pairs
    ]
    across, up = x.at(100 * row[LETTERS]["mean"]), y.at(100 * row[SUMS]["mean"])
    low, high = (x.at(100 * min(max(edge, 0.0), 1.0)) for edge in row[LETTERS]["interval"])
    bottom, top = (y.at(100 * min(max(edge, 0.0), 1.0)) for edge in row[SUMS]["interval"])
    parts.append(f'<path stroke="{colour}" stroke-width="1.5" d="M{low:.1f},{up:.1f}H{high:.1f}"/>')
    parts.append(f'<path stroke="{colour}" stroke-width="1.5" d="M{across:.1f},{bottom:.1f}V{top:.1f}"/>')
    parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="5.5" fill="{colour}"/>')
    return parts


def name_of(contender: str) -> str:
    """A short name of a contender."""
    return next((name for start, name in NAMES.items() if contender.startswith(start)), contender.split()[0])


def main(arguments: Sequence[str]) -> int:
    """Count if a folder is named, then draw."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    if arguments:
        found = counted(found, Path(arguments[0]))
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(draw(found), encoding="utf-8")
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
