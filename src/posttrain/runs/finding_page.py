"""A self-contained page about what a diagnostic found: its pictures, and its lines."""

import math
from collections.abc import Sequence
from itertools import chain

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from posttrain.components.diagnostics import Finding, Picture
from posttrain.runs.charts import Chart, Series, draw
from posttrain.runs.report import asset, visible


def finding_page(kind: str, names: Sequence[str], finding: Finding) -> str:
    """The page of a finding about these models or parts."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible}
    return environment.from_string(asset("finding.html")).render(
        style=Markup(asset("report.css")),
        script=Markup(asset("report.js")),
        kind=kind,
        names=names,
        lines=finding.lines,
        pictures=[(picture, _drawn(picture)) for picture in finding.pictures],
    )


def _drawn(picture: Picture) -> Markup:
    """The picture as SVG."""
    points = [(place, value) for place, value, _, _ in picture.points]
    intervals = [(low, high) for _, _, low, high in picture.points]
    if not all(map(math.isfinite, chain(*intervals))):
        intervals = []  # of one value there is none
    series = Series(name=picture.title, points=points, intervals=intervals, band=True)
    return draw(Chart(title=picture.title, caption=picture.caption, series=[series]), [])
