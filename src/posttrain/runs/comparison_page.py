"""``comparison.html``: a self-contained page about a comparison, with its curves, paired differences and costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from posttrain.runs.amounts import amount, difference, unit_of, with_interval
from posttrain.runs.charts import Chart, Difference, Series, Span, draw, draw_differences
from posttrain.runs.compared import COST, sentence
from posttrain.runs.report import asset, visible
from posttrain.statistics.repeated import paired_differences

Result = Mapping[str, Any]


def page(result: Result) -> str:
    """The page of what ``comparison.json`` holds."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible}
    rows, measures = result["contenders"], result["measures"]
    return environment.from_string(asset("comparison.html")).render(
        style=Markup(asset("report.css")),
        script=Markup(asset("report.js")),
        result=result,
        labels=[row["contender"] for row in rows],
        sentences=[sentence(row, name, result["base"]) for name in measures for row in rows[1:]],
        differences=[_differences(rows, name) for name in measures],
        charts=list(_curves(rows)),
        columns=[*(text for name in measures for text in (name, "interquartile mean"))],
        costs=COST,
        table=[_cells(row, measures) for row in rows],
    )


def _differences(rows: Sequence[Result], name: str) -> dict[str, Any]:
    """The picture of a measure's differences from the first contender."""
    base, unit, drawn = rows[0], unit_of(name), []
    for row in rows[1:]:
        found = row[name].get("difference") if row[name] else None
        if found is None:
            continue
        shared = [seed for seed in row["seeds"] if seed in base["seeds"]]
        before, after = ([one[name]["values"][one["seeds"].index(s)] for s in shared] for one in (base, row))
        drawn.append(
            Difference(
                name=row["contender"],
                text=difference(found["value"], found["interval"], unit),
                value=found["value"],
                interval=found["interval"],
                seeds=paired_differences(before, after),
            )
        )
    return {"measure": name, "svg": draw_differences(drawn, percent=unit == "share") if drawn else Markup("")}


def _curves(rows: Sequence[Result]) -> list[dict[str, Any]]:
    """A chart for every metric that some contender has at every step."""
    charts = []
    for name in dict.fromkeys(name for row in rows for name in row["curves"]):
        own = [(row["contender"], row["curves"][name]) for row in rows if row["curves"].get(name, {}).get("steps")]
        if not own:
            continue
        series = [
            Series(
                name=label,
                points=list(zip(curve["steps"], curve["mean"], strict=True)),
                intervals=[(low, high) for low, high in curve["interval"]] if all(curve["interval"]) else (),
                band=True,
            )
            for label, curve in own
        ]
        steps = [step for _, curve in own for step in curve["steps"]]
        chart = Chart(title=name, caption="", series=series, percent=unit_of(name) == "share")
        spans = [Span(name="", first=min(steps), last=max(steps))]
        charts.append({"title": name, "names": [label for label, _ in own], "svg": draw(chart, spans)})
    return charts


def _cells(row: Result, measures: Sequence[str]) -> dict[str, Any]:
    """A row of the table: measures with intervals, interquartile means, costs."""
    cells = []
    for name in measures:
        own, unit = row[name], unit_of(name)
        middle = own and own["iqm"]
        cells.append(with_interval(own["mean"], own["interval"], unit) if own else "-")
        cells.append(with_interval(middle["value"], middle["interval"], unit) if middle else "-")
    costs = [amount(row[name]["mean"], unit_of(name)) if row[name] else "-" for name in COST]
    return {"label": row["contender"], "seeds": len(row["seeds"]), "cells": cells, "costs": costs}
