"""Line charts as inline SVG, coloured by the page's style sheet."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

WIDTH, HEIGHT = 520, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 22, 24
_MOST_POINTS = 400

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    """(step, value), by step."""
    intervals: Sequence[tuple[float, float]] = ()
    """For each point, both ends of its confidence interval."""
    band: bool = False
    """Intervals are drawn as one band, not as a line per point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart: its lines, title and caption."""

    title: str
    caption: str
    """The meaning of the quantity, in a sentence."""
    series: Sequence[Series]
    percent: bool = False
    """Values are shares, and shown in percent."""
    floor: float | None = None
    """The value axis begins here or at the least value, whichever is lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stage on the step axis."""

    name: str
    first: int
    last: int


def draw(chart: Chart, spans: Sequence[Span]) -> Markup:
    """The chart as an SVG element whose ``data-series`` holds the values for the page's pointer read-out."""
    reduced = [_reduced(series) for series in chart.series]
    xs = [x for series in reduced for x, _ in series.points] + [edge for s in spans for edge in (s.first - 1, s.last)]
    x_axis = _Axis(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
    y_axis = _y_axis(chart, reduced)
    parts = [_shading(spans, x_axis), _grid(y_axis, x_axis, percent=chart.percent)]
    parts += [_line(number, series, spans, x_axis, y_axis) for number, series in enumerate(reduced)]
    read_out = {
        "percent": chart.percent,
        "series": [
            {
                "name": series.name,
                "points": [[x, y, round(x_axis.at(x), 1), round(y_axis.at(y), 1)] for x, y in series.points],
                "intervals": [list(pair) for pair in series.intervals],
            }
            for series in reduced
        ],
    }
    return Markup(
        '<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{label}" data-series="{data}">{parts}'
        '<g class="cursor"><line y1="{top}" y2="{bottom}"/></g></svg>'
    ).format(
        w=WIDTH,
        h=HEIGHT,
        label=chart.title,
        data=json.dumps(read_out),
        parts=Markup("").join(parts),
        top=_TOP,
        bottom=HEIGHT - _BOTTOM,
    )


def draw_intervals(rows: Sequence[tuple[str, float, Sequence[float]]]) -> Markup:
    """Shares with their intervals on one scale from 0 to 100 %, one row per share: (name, share, [low, high])."""
    axis = _Axis(0.0, 1.0, 64, WIDTH - 22)
    height = 26 * len(rows) + 22
    parts = [
        Markup(
            '<line class="grid" x1="{x}" x2="{x}" y1="4" y2="{y}"/><text class="tick" x="{x}" y="{t}">{n} %</text>'
        ).format(x=round(axis.at(share / 100), 1), y=height - 18, t=height - 4, n=share)
        for share in (0, 25, 50, 75, 100)
    ]
    for number, (name, share, (low, high)) in enumerate(rows):
        parts.append(
            Markup(
                '<g class="range {name}"><text x="0" y="{text}">{name}</text>'
                '<rect x="{x}" y="{y}" width="{w}" height="10" rx="5"/><circle cx="{c}" cy="{m}" r="5.5"/></g>'
            ).format(
                name=name,
                x=round(axis.at(low), 1),
                w=round(max(axis.at(high) - axis.at(low), 1.0), 1),
                c=round(axis.at(share), 1),
                y=26 * number + 9,
                m=26 * number + 14,
                text=26 * number + 18,
            )
        )
    return Markup('<svg class="ranges" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{parts}</svg>').format(
        w=WIDTH,
        h=height,
        parts=Markup("").join(parts),
        label=", ".join(f"{name} {100 * share:.1f} %" for name, share, _ in rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between two methods over seeds."""

    name: str
    text: str
    """The difference and its interval in words."""
    value: float
    interval: Sequence[float] | None
    seeds: Sequence[float]
    """The difference of each seed."""


def draw_differences(rows: Sequence[Difference], *, percent: bool) -> Markup:
    """Differences on one scale that holds 0: a dot per seed, the mean, and its interval."""
    values = [0.0, *(v for row in rows for v in (row.value, *row.seeds, *(row.interval or ())))]
    marks = ticks(min(values), max(values))
    axis = _Axis(marks[0], marks[-1], 24, WIDTH - 24)
    height = 48 * len(rows) + 24
    parts = [
        Markup(
            '<line class="{c}" x1="{x}" x2="{x}" y1="4" y2="{y}"/><text class="tick" x="{x}" y="{t}">{n}</text>'
        ).format(
            c="grid" if abs(mark) > 1e-12 else "zero",
            x=round(axis.at(mark), 1),
            y=height - 18,
            t=height - 4,
            n=f"{100 * mark:+.3g}" if percent else f"{mark:+.3g}",
        )
        for mark in marks
    ]
    for number, row in enumerate(rows):
        y = 48 * number + 34
        low, high = (axis.at(end) for end in row.interval or (row.value, row.value))
        dots = Markup("").join(
            Markup('<circle class="seed" cx="{x}" cy="{y}" r="3"/>').format(x=round(axis.at(value), 1), y=y)
            for value in row.seeds
        )
        parts.append(
            Markup(
                '<g class="series s{n}"><text x="0" y="{t}">{name}: {text}</text>'
                '<rect x="{x}" y="{top}" width="{w}" height="8" rx="4"/>{dots}<circle cx="{c}" cy="{y}" r="5.5"/></g>'
            ).format(
                n=(number + 1) % 5,
                t=y - 14,
                name=row.name,
                text=row.text,
                x=round(low, 1),
                w=round(max(high - low, 1.0), 1),
                top=y - 4,
                dots=dots,
                c=round(axis.at(row.value), 1),
                y=y,
            )
        )
    svg = Markup('<svg class="ranges differences" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{parts}</svg>')
    label = "; ".join(f"{row.name}: {row.text}" for row in rows)
    return svg.format(w=WIDTH, h=height, parts=Markup("").join(parts), label=label)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round numbers, of which the first and the last enclose an interval."""
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-12 * largest, 1e-300):  # one value, up to rounding
        room = largest / 2 if largest > 1e-300 else 0.5
        low, high = low - room, high + room
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _y_axis(chart: Chart, series: Sequence[Series]) -> "_Axis":
    """The value axis, with room for intervals."""
    values = [y for one in series for _, y in one.points] + [
        edge for one in series for p in one.intervals for edge in p
    ]
    low = min(values) if chart.floor is None else min(chart.floor, *values)
    marks = ticks(low, max(values))
    high = min(marks[-1], 1.0) if chart.percent and max(values) <= 1.0 else marks[-1]
    return _Axis(marks[0], high, HEIGHT - _BOTTOM, _TOP)


def _grid(y_axis: _Axis, x_axis: _Axis, *, percent: bool) -> Markup:
    """Lines and numbers of both axes."""
    parts = []
    for value in ticks(y_axis.low, y_axis.high):
        if not y_axis.low - 1e-12 <= value <= y_axis.high + 1e-12:
            continue
        y = round(y_axis.at(value), 1)
        parts.append(
            Markup(
                '<line class="grid" x1="{l}" x2="{r}" y1="{y}" y2="{y}"/>'
                '<text class="tick y" x="{t}" y="{b}">{v}</text>'
            ).format(l=_LEFT, r=WIDTH - _RIGHT, y=y, t=_LEFT - 6, b=y + 3.5, v=_label(value, percent=percent))
        )
    for value in ticks(x_axis.low, x_axis.high, 5):
        if x_axis.low <= value <= x_axis.high and value == int(value):
            parts.append(
                Markup('<text class="tick" x="{x}" y="{y}">{v:,}</text>').format(
                    x=round(x_axis.at(value), 1), y=HEIGHT - 7, v=int(value)
                )
            )
    return Markup("").join(parts)


def _label(value: float, *, percent: bool) -> str:
    """A number of an axis."""
    if percent:
        return f"{100 * value:.3g} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _shading(spans: Sequence[Span], axis: _Axis) -> Markup:
    """A band behind each stage, with its name, when there are several."""
    if len(spans) < 2:
        return Markup("")
    parts = []
    for number, span in enumerate(spans):
        left, right = axis.at(span.first - 1), axis.at(span.last)
        parts.append(
            Markup('<rect class="band b{n}" x="{x}" y="{t}" width="{w}" height="{h}"/>').format(
                n=number % 2, x=round(left, 1), t=_TOP, w=round(right - left, 1), h=HEIGHT - _BOTTOM - _TOP
            )
        )
        if right - left > 7 * len(span.name):
            parts.append(
                Markup('<text class="stage" x="{x}" y="{y}">{name}</text>').format(
                    x=round(left + 4, 1), y=_TOP - 7, name=span.name
                )
            )
    return Markup("").join(parts)


def _line(number: int, series: Series, spans: Sequence[Span], x_axis: _Axis, y_axis: _Axis) -> Markup:
    """A series: intervals and dots when there are few values, a line, and a smoothed one over many noisy values."""
    at = {x: (round(x_axis.at(x), 1), round(y_axis.at(y), 1)) for x, y in series.points}
    parts = []
    if series.band and series.intervals:
        ends = zip(at.values(), series.intervals, strict=True)
        pixels = [(x, round(y_axis.at(low), 1), round(y_axis.at(high), 1)) for (x, _), (low, high) in ends]
        edge = [(x, top) for x, _, top in pixels] + [(x, bottom) for x, bottom, _ in reversed(pixels)]
        parts.append(Markup('<path class="ribbon" d="{d}Z"/>').format(d=_path(edge)))
    for (x, _), (low, high) in zip(at.values(), () if series.band else series.intervals, strict=False):
        parts.append(
            Markup('<line class="whisker" x1="{x}" x2="{x}" y1="{a}" y2="{b}"/>').format(
                x=x, a=round(y_axis.at(low), 1), b=round(y_axis.at(high), 1)
            )
        )
    # Metrics of different stages are not comparable; accuracy is on the same tasks throughout.
    stretches = [list(at.values())] if series.intervals and at else _by_stage(at, spans)
    noisy = len(at) >= 40
    for stretch in stretches:
        parts.append(Markup('<path class="{c}" d="{d}"/>').format(c="raw" if noisy else "line", d=_path(stretch)))
        if noisy:
            parts.append(Markup('<path class="line" d="{d}"/>').format(d=_path(_smoothed(stretch))))
    if len(at) <= 30:
        parts += [Markup('<circle cx="{x}" cy="{y}" r="2.6"/>').format(x=x, y=y) for x, y in at.values()]
    return Markup('<g class="series s{n}">{parts}</g>').format(n=number % 5, parts=Markup("").join(parts))


def _by_stage(at: Mapping[float, Point], spans: Sequence[Span]) -> list[list[Point]]:
    """Pixels by step, split where a stage ends; whole where no stages are given."""
    if not spans:
        return [list(at.values())] if at else []
    split = [[pixel for x, pixel in at.items() if span.first <= x <= span.last] for span in spans]
    return [stretch for stretch in split if stretch]


def _path(points: Sequence[Point]) -> str:
    """Commands of an SVG path through the points."""
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def _smoothed(points: Sequence[Point]) -> list[Point]:
    """Centred moving average over a twelfth of the points."""
    reach = max(1, len(points) // 24)
    ys = [y for _, y in points]
    return [(x, round(statistics.fmean(ys[max(0, i - reach) : i + reach + 1]), 1)) for i, (x, _) in enumerate(points)]


def _reduced(series: Series) -> Series:
    """The series with at most `_MOST_POINTS` points, neighbours averaged."""
    count = len(series.points)
    if count <= _MOST_POINTS or series.intervals:
        return series
    bounds = [i * count // _MOST_POINTS for i in range(_MOST_POINTS + 1)]
    points = [
        (series.points[end - 1][0], statistics.fmean(y for _, y in series.points[begin:end]))
        for begin, end in pairwise(bounds)
    ]
    return Series(name=series.name, points=points)
