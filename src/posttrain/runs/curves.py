"""The curves of a run for the report and the viewer."""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.runs.charts import Chart, Series, Span, draw

Entry = Mapping[str, Any]


def curves(metrics: Sequence[Entry], evaluations: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every curve for which there are numbers: ``title``, ``caption``, ``names`` of its lines, and ``svg``."""
    spans = [
        Span(name=name, first=min(steps), last=max(steps))
        for name in dict.fromkeys(entry["stage"] for entry in metrics)
        if (steps := [entry["step"] for entry in metrics if entry["stage"] == name])
    ]
    charts = [
        Chart(
            title="Held-out accuracy",
            caption="Right greedy answers to tasks that were never trained on, with 95 % intervals.",
            series=[_accuracy(evaluations)],
            percent=True,
            floor=0.0,
        ),
        _chart(metrics, "Reward", "Mean score of the sampled answers, and of its parts.", "reward", "reward/"),
        _chart(
            metrics,
            "Loss",
            "In imitation, surprise at what is taught, in nats per token; in reinforcement, no measure of progress.",
            "loss",
        ),
        _chart(metrics, "Length", "Mean tokens of an answer.", "completion_tokens"),
        _chart(
            metrics,
            "Entropy",
            "How undecided the policy is, in nats per token; at zero it explores no more.",
            "entropy",
        ),
        _chart(metrics, "Divergence", "How far the policy has moved from a reference (KL, nats per token).", "kl/"),
        _chart(
            metrics,
            "Shares",
            "Groups whose rewards are all equal teach nothing; truncated answers were cut at the token limit.",
            "zero_variance",
            "truncated",
            "grader_errors",
            percent=True,
            floor=0.0,
        ),
        _chart(metrics, "Gradient norm", "Size of the update before clipping.", "gradient_norm", floor=0.0),
    ]
    return [
        {
            "title": chart.title,
            "caption": chart.caption,
            "names": [s.name for s in chart.series],
            "svg": draw(chart, spans),
        }
        for chart in charts
        if any(series.points for series in chart.series)
    ]


def _chart(metrics: Sequence[Entry], title: str, caption: str, *names: str, **options: Any) -> Chart:
    """A chart of some metrics; a name that ends in a slash stands for all that begin so."""
    known = list(dict.fromkeys(key for entry in metrics for key in entry))
    chosen = [key for name in names for key in known if key == name or (name.endswith("/") and key.startswith(name))]
    series = [
        Series(
            name=key.split("/", 1)[-1].replace("_", "-") if "/" in key else key.replace("_", " "),
            points=[(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None],
        )
        for key in chosen
    ]
    return Chart(title=title, caption=caption, series=[s for s in series if s.points], **options)


def _accuracy(evaluations: Sequence[Entry]) -> Series:
    """Held-out accuracy by step; a later evaluation after the same step takes the place of an earlier one."""
    judged = {e["step"]: e for e in evaluations if e["accuracy"] is not None}
    return Series(
        name="accuracy",
        points=[(step, e["accuracy"]) for step, e in judged.items()],
        intervals=[tuple(e["accuracy_interval"]) for e in judged.values()],
    )
