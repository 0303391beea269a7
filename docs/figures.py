"""Pictures of experiments as SVG, without a library and without a script: curves where values of every step were kept,
otherwise the outcome of each seed with mean and interval.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from posttrain.recipes.pages.experiments import Experiment
from posttrain.runs.charts import ticks

WIDTH: Final = 720
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 30, 34
COLOURS: Final = ("#5b6770", "#c2410c", "#1d6fb8", "#2e8540", "#8a3fa0", "#9a6b00")
"""The base is grey."""
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#6b7280}.name{font-weight:600}"
    ".grid{stroke:#9ca3af;stroke-opacity:.35}.mean{stroke-width:2.5;fill:none}.band{fill-opacity:.15}"
)
LONGEST: Final = 92
"""Characters of a recipe's changes that a picture shows."""


def picture(experiment: Experiment) -> str:
    """The SVG of an experiment with contenders."""
    if experiment.has_curves:
        return curves(experiment)
    return outcomes(experiment)


def outcomes(experiment: Experiment) -> str:
    """A row for each contender: a dot for each seed, the mean, and its interval, of the first measure."""
    measure, height = experiment.measures[0], 46
    rows = [contender for contender in experiment.contenders if contender.get(measure)]
    axis = Axis([value for row in rows for value in (*row[measure]["values"], *(row[measure]["interval"] or ()))])
    bottom = TOP + height * len(rows)
    parts = [f'<text class="name" x="{LEFT}" y="18">{escape(measure)}</text>', *axis.grid(bottom)]
    for number, row in enumerate(rows):
        y, colour, found = TOP + height * number + 32, colour_of(number), row[measure]
        parts.append(f'<text x="{LEFT}" y="{y - 14}">{escape(short(row["contender"]))}</text>')
        if found["interval"]:
            low, high = (axis.at(edge) for edge in found["interval"])
            parts.append(
                f'<rect x="{low:.1f}" y="{y - 5}" width="{high - low:.1f}" height="10" fill="{colour}" '
                'fill-opacity=".2" rx="3"/>'
            )
        parts += [f'<circle cx="{axis.at(v):.1f}" cy="{y}" r="3.5" fill="{colour}"/>' for v in found["values"]]
        mean = axis.at(found["mean"])
        parts.append(f'<path class="mean" stroke="{colour}" d="M{mean:.1f},{y - 9}V{y + 9}"/>')
    return svg(parts, bottom + BOTTOM, f"{experiment.title}: {measure} of each seed, mean and 95 % interval")


def curves(experiment: Experiment) -> str:
    """Mean over the seeds at every step, with its interval, of each contender."""
    rows = [contender for contender in experiment.contenders if contender.get("curves")]
    name = shown(experiment, list(rows[0]["curves"]))
    rows = [row for row in rows if name in row["curves"]]
    lines = [row["curves"][name] for row in rows]
    height = 260
    x_axis = Axis([step for line in lines for step in line["steps"]])
    edges = [edge for line in lines for pair in line["interval"] for edge in pair or ()]
    y_axis = Axis([*edges, *(value for line in lines for value in line["mean"])], TOP + height, TOP)
    bottom = TOP + height
    parts = [f'<text class="name" x="{LEFT}" y="18">{escape(name)}, by step</text>']
    parts += [*x_axis.grid(bottom), *y_axis.levels()]
    for number, (row, line) in enumerate(zip(rows, lines, strict=True)):
        colour = colour_of(number)
        parts += drawn(line, x_axis, y_axis, colour)
        y = bottom + BOTTOM + 18 * number + 8
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="14" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 20}" y="{y}">{escape(short(row["contender"]))}</text>')
    said = f"{experiment.title}: {name} by step, mean of the seeds and 95 % interval"
    return svg(parts, bottom + BOTTOM + 18 * len(rows) + 8, said)


def shown(experiment: Experiment, names: Sequence[str]) -> str:
    """The metric whose curves are drawn: one that was measured, the reward before others, before any that was not."""
    measured = [name for measure in experiment.measures if (name := measure.partition(":")[0]) in names]
    return "reward" if "reward" in measured else next(iter([*measured, *names]))


def drawn(line: Mapping[str, Any], x_axis: "Axis", y_axis: "Axis", colour: str) -> Iterator[str]:
    """The band and the mean of one curve."""
    xs = [x_axis.at(step) for step in line["steps"]]
    if all(line["interval"]):
        low, high = ([y_axis.at(edge) for edge in edges] for edges in zip(*line["interval"], strict=True))
        there = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, high, strict=True))
        back = " ".join(f"{x:.1f},{y:.1f}" for x, y in reversed(list(zip(xs, low, strict=True))))
        yield f'<polygon class="band" fill="{colour}" points="{there} {back}"/>'
    mean = " ".join(f"{x:.1f},{y_axis.at(y):.1f}" for x, y in zip(xs, line["mean"], strict=True))
    yield f'<polyline class="mean" stroke="{colour}" points="{mean}"/>'


class Axis:
    """A linear map from values to pixels, with round numbers at both ends."""

    def __init__(self, values: Sequence[float], start: float = LEFT, end: float = WIDTH - RIGHT) -> None:
        self.marks = ticks(min(values), max(values))
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.marks[0], self.marks[-1]
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def grid(self, bottom: float) -> Iterator[str]:
        """Upright lines with their numbers below."""
        for mark in self.marks:
            x = self.at(mark)
            yield f'<path class="grid" d="M{x:.1f},{TOP}V{bottom}"/>'
            yield f'<text text-anchor="middle" x="{x:.1f}" y="{bottom + 16}">{mark:.4g}</text>'

    def levels(self) -> Iterator[str]:
        """Level lines with their numbers on the left."""
        for mark in self.marks:
            y = self.at(mark)
            yield f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>'
            yield f'<text text-anchor="end" x="{LEFT - 6}" y="{y + 4:.1f}">{mark:.4g}</text>'


def colour_of(number: int) -> str:
    """The colour of a contender."""
    return COLOURS[number % len(COLOURS)]


def short(contender: str) -> str:
    """A contender's name that fits into the picture."""
    return contender if len(contender) <= LONGEST else f"{contender[: LONGEST - 4]} ..."


def svg(parts: Sequence[str], height: float, title: str) -> str:
    """A whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )
