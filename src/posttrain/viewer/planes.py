"""Pictures of points in a plane: ratings of held-out answers against one another, and shares of three arms or domains.

The front has the mean of two parts of the score of held-out answers, a point for each direction that is stated in front
of the prompts (``97 -26``), and a line for each evaluation. The simplex is a triangle in which each corner is an arm;
its path goes from the first step to the last. That of several runs has a point for each, with its held-out accuracy.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from posttrain.runs.charts import ticks
from posttrain.viewer.questions import parts_of_evaluations

Page = dict[str, Any]
Point = tuple[float, float]

SIZE, LEFT, EDGE = 300, 46, 26
MOST_LINES = 5
_LINE = Markup('<path class="line" d="{d}"/>')
_DOT = Markup('<circle cx="{x}" cy="{y}" r="3"><title>{text}</title></circle>')


def front(folder: Path) -> Page | None:
    """Two parts of the scores of held-out answers against one another; None for runs without two."""
    rows = parts_of_evaluations(folder)
    names = sorted({row["part"] for row in rows})
    if len(names) < 2:
        return None
    values: dict[tuple[int, str], dict[str, dict[str, float]]] = {}
    for row in rows:
        values.setdefault((row["step"], row["evaluation"]), {}).setdefault(row["direction"], {})[row["part"]] = row[
            "mean"
        ]
    first, second = names[:2]
    lines = {
        evaluation: [
            (direction, (own[first], own[second]))
            for direction, own in sorted(found.items(), key=lambda item: _angle(item[0]))
            if first in own and second in own
        ]
        for (_, evaluation), found in sorted(values.items())
    }
    kept = {name: points for name, points in list(lines.items())[-MOST_LINES:] if points}
    return {"names": list(kept), "across": first, "up": second, "svg": _scatter(kept), "lines": kept}


def simplex(arms: Sequence[Mapping[str, Any]]) -> Page | None:
    """The shares of three arms over the steps; None for any other number of them."""
    if len(arms) != 3:
        return None
    path = [tuple(shares) for shares in zip(*(arm["shares"] for arm in arms), strict=True) if None not in shares]
    points, parts = _triangle([arm["arm"] for arm in arms], path)
    marks = [
        _DOT.format(
            x=x, y=y, text=", ".join(f"{arm['arm']} {share:.1%}" for arm, share in zip(arms, shares, strict=True))
        )
        for (x, y), shares in zip(points, path, strict=True)
    ]
    return {"svg": _svg([*parts, _series(0, points, marks)], "Shares of three arms"), "points": points}


def mixtures(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Runs by their shares of three domains, each with its accuracy; None for any other number of domains."""
    names = sorted({name for row in rows for name in row["shares"]})
    if len(names) != 3:
        return None
    points, parts = _triangle(names, [tuple(row["shares"].get(name, 0.0) for name in names) for row in rows])
    marks = []
    for (x, y), row in zip(points, rows, strict=True):
        marks.append(_DOT.format(x=x, y=y, text=f"{row['run']}: {row['text']}, {row['accuracy']:.1%}"))
        marks.append(
            Markup('<text class="tick" x="{x}" y="{y}">{value:.0f}</text>').format(
                x=x + 5, y=y - 5, value=100.0 * row["accuracy"]
            )
        )
    return _svg([*parts, _series(0, [], marks)], "Held-out accuracy by shares of three domains")


def _triangle(names: Sequence[str], shares: Sequence[tuple[float, ...]]) -> tuple[list[Point], list[Markup]]:
    """The point of each row of shares, and a triangle with a name at each corner."""
    side, top = SIZE - 2 * EDGE, EDGE
    height = side * 0.75**0.5
    corners = [(float(EDGE), top + height), (EDGE + float(side), top + height), (EDGE + side / 2.0, float(top))]
    points = [
        (round(sum(s * c[0] for s, c in zip(row, corners, strict=True)), 1),
         round(sum(s * c[1] for s, c in zip(row, corners, strict=True)), 1))
        for row in shares
    ]  # fmt: skip
    anchors, below = ("start", "end", "middle"), (16, 16, -8)
    parts = [Markup('<path class="grid" fill="none" d="{d}Z"/>').format(d=_path(corners))]
    parts += [
        Markup('<text class="tick" style="text-anchor:{a}" x="{x}" y="{y}">{name}</text>').format(
            a=anchor, x=x, y=round(y + under, 1), name=name
        )
        for (x, y), anchor, under, name in zip(corners, anchors, below, names, strict=True)
    ]
    return points, parts


def _scatter(lines: Mapping[str, Sequence[tuple[str, Point]]]) -> Markup:
    """Points of each line, the axes with round numbers."""
    every = [point for points in lines.values() for _, point in points]
    (across, up) = (ticks(min(p[i] for p in every), max(p[i] for p in every)) for i in (0, 1))

    def at(point: Point) -> Point:
        x = LEFT + (point[0] - across[0]) / (across[-1] - across[0]) * (SIZE - LEFT - EDGE)
        y = SIZE - EDGE - (point[1] - up[0]) / (up[-1] - up[0]) * (SIZE - 2 * EDGE)
        return round(x, 1), round(y, 1)

    parts = []
    for value in across:
        x, _ = at((value, up[0]))
        parts.append(Markup('<text class="tick" x="{x}" y="{y}">{v:.3g}</text>').format(x=x, y=SIZE - 8, v=value))
    for value in up:
        _, y = at((across[0], value))
        parts.append(
            Markup(
                '<line class="grid" x1="{l}" x2="{r}" y1="{y}" y2="{y}"/>'
                '<text class="tick y" x="{t}" y="{y}">{v:.3g}</text>'
            ).format(l=LEFT, r=SIZE - EDGE, y=y, t=LEFT - 6, v=value)
        )
    for number, (name, own) in enumerate(lines.items()):
        points = [at(point) for _, point in own]
        marks = [
            _DOT.format(x=x, y=y, text=f"{name}{f', {direction}' if direction else ''}: {a:.3g}, {b:.3g}")
            for (x, y), (direction, (a, b)) in zip(points, own, strict=True)
        ]
        parts.append(_series(number, points, marks))
    return _svg(parts, "Two parts of the score against one another")


def _series(number: int, points: Sequence[Point], marks: Sequence[Markup]) -> Markup:
    path = _LINE.format(d=_path(points)) if len(points) > 1 else Markup("")
    return Markup('<g class="series s{n}">{path}{marks}</g>').format(
        n=number % 5, path=path, marks=Markup("").join(marks)
    )


def _svg(parts: Sequence[Markup], label: str) -> Markup:
    return Markup(
        '<svg class="chart plane" viewBox="0 0 {s} {s}" role="img" aria-label="{label}">{parts}</svg>'
    ).format(s=SIZE, label=label, parts=Markup("").join(parts))


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def _angle(direction: str) -> tuple[float, str]:
    """The order of directions along the front: by their second number."""
    numbers = direction.split()
    return (float(numbers[1]) if len(numbers) == 2 else 0.0), direction
