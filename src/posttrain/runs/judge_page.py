"""``judge.html``: a self-contained page about the audit of a judge: its faults, effects, figures, and what fools it."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from posttrain.runs.charts import Difference, draw_differences
from posttrain.runs.report import asset, visible

SHARES = ("accuracy", "strict", "flips")
NAMES = {
    "accuracy": "accuracy, ties half",
    "strict": "right in both orders",
    "flips": "changes with the order",
    "ties": "ties",
    "unreadable": "unreadable replies",
    "repetition": "changes when asked again",
}


def judge_page(report: Mapping[str, Any]) -> str:
    """The page of a report as JSON (`JudgeReport.as_json`)."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible}
    keys = sorted(report["attacks"], key=lambda one: -max(one["alone"], one["gain"]))
    return environment.from_string(asset("judge.html")).render(
        style=Markup(asset("report.css")),
        report=report,
        effects=_effects(report["effects"]),
        rows=[*_shares(report["figures"]), *_categories(report["figures"])],
        others=_others(report["figures"]),
        keys=keys,
    )


def _effects(effects: Mapping[str, Mapping[str, Any]]) -> Markup:
    """The effects with their intervals on one scale."""
    drawn = [
        Difference(
            name=name,
            text=f"{row['value']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}] nats; {row['verdict']}",
            value=row["value"],
            interval=(row["low"], row["high"]),
            seeds=(),
        )
        for name, row in effects.items()
    ]
    return draw_differences(drawn, percent=False) if drawn else Markup("")


def _shares(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [{"name": NAMES[name], "value": figures[name]["value"], "text": _text(figures[name])} for name in SHARES]
    plain = [(name, figures[name]) for name in ("ties", "unreadable", "repetition") if figures[name] is not None]
    return rows + [{"name": NAMES[name], "value": value, "text": f"{value:.1%}"} for name, value in plain]


def _categories(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = figures["categories"].items()
    return [{"name": f"accuracy in {name}", "value": own["value"], "text": _text(own)} for name, own in found]


def _text(own: Mapping[str, Any]) -> str:
    return f"{own['value']:.1%} [{own['low']:.1%}, {own['high']:.1%}]"


def _others(figures: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """What is measured only where the data and the judge allow it."""
    cycles, calibration, contrasts = figures["cycles"], figures["calibration"], figures["contrasts"]
    return [
        (
            "cyclic triples of answers",
            "no prompt has three answers"
            if cycles is None
            else f"{cycles['cyclic']:.1%} of {cycles['triples']}, expected {cycles['expected']:.1%}",
        ),
        (
            "calibration error",
            "the judge states no probability"
            if calibration is None
            else f"{calibration['error']:.3f}; slope of the outcome in the stated log-odds {calibration['slope']:.2f}",
        ),
        (
            "follows the principle where labels are opposite",
            "no answers have opposite labels under two principles" if contrasts is None else _text(contrasts),
        ),
    ]
