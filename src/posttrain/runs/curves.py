"""The curves of a run for the report and the viewer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from posttrain.runs.charts import Chart, Series, Span, draw

Entry = Mapping[str, Any]


def curves(metrics: Sequence[Entry], evaluations: Sequence[Entry]) -> list[dict[str, Any]]:
    """All curves that have values: ``title``, ``caption``, ``names`` of the lines, and ``svg``."""
    spans = [
        Span(name=name, first=min(steps), last=max(steps))
        for name in dict.fromkeys(entry["stage"] for entry in metrics)
        if (steps := [entry["step"] for entry in metrics if entry["stage"] == name])
    ]
    known = list(dict.fromkeys(key for entry in metrics for key in entry))
    chart = partial(_chart, metrics, known)
    charts = [
        *_held_out_charts(evaluations),
        chart("Reward", "Mean score of the sampled answers, and of its parts.", "reward", "reward/"),
        chart(
            "Loss",
            "In supervised stages, surprise at the demonstrations in nats per token; in rl, no measure of progress.",
            "loss",
        ),
        chart("Length", "Mean tokens of an answer.", "completion_tokens"),
        chart(
            "Entropy",
            "Of the policy, in nats per token; at zero it no longer explores. The sampled NLL is minus the mean "
            "log-probability of what was drawn.",
            "entropy",
            "sampled_nll",
        ),
        chart("Divergence", "KL of the policy from a reference, in nats per token.", "kl/"),
        chart(
            "Shares",
            "Groups with equal rewards have no gradient; truncated answers were cut at the token limit.",
            "zero_variance",
            "truncated",
            "grader_errors",
            percent=True,
            floor=0.0,
        ),
        chart("Gradient norm", "Size of the update before clipping.", "gradient_norm", floor=0.0),
    ]
    return [
        {
            "title": drawn.title,
            "caption": drawn.caption,
            "names": [s.name for s in drawn.series],
            "svg": draw(drawn, spans),
        }
        for drawn in (replace(c, series=[s for s in c.series if s.points]) for c in charts)
        if drawn.series
    ]


def _held_out_charts(evaluations: Sequence[Entry]) -> list[Chart]:
    """What was measured on the held-out tasks."""
    return [
        Chart(
            title="Held-out accuracy",
            caption="Correct greedy answers to tasks that were never trained on, with 95 % intervals.",
            series=[_held_out(evaluations, "accuracy", "accuracy")],
            percent=True,
            floor=0.0,
        ),
        Chart(
            title="Held-out loss",
            caption="Nats a token of demonstrations that were never trained on, with 95 % intervals.",
            series=[_held_out(evaluations, "held_out_loss", "loss")],
        ),
        Chart(
            title="Held-out pairs",
            caption="Shares of pairs that were never trained on: the chosen completion is likelier than the rejected "
            "one, and it has become likelier in comparison since the start.",
            series=[
                _held_out(evaluations, "pair_accuracy", "chosen likelier"),
                _held_out(evaluations, "implicit_accuracy", "chosen gained more"),
            ],
            percent=True,
            floor=0.0,
        ),
    ]


def _chart(
    metrics: Sequence[Entry], known: Sequence[str], title: str, caption: str, *names: str, **options: Any
) -> Chart:
    """A chart of some of the known metrics; a name that ends with a slash is a prefix."""
    chosen = [key for name in names for key in known if key == name or (name.endswith("/") and key.startswith(name))]
    series = [
        Series(
            name=key.split("/", 1)[-1].replace("_", "-") if "/" in key else key.replace("_", " "),
            points=[(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None],
        )
        for key in chosen
    ]
    return Chart(title=title, caption=caption, series=[s for s in series if s.points], **options)


def _held_out(evaluations: Sequence[Entry], number: str, name: str) -> Series:
    """A number of the evaluations by step; a later evaluation after the same step replaces an earlier one."""
    measured = {e["step"]: e for e in evaluations if e.get(number) is not None}
    intervals = [e[f"{number}_interval"] for e in measured.values()]
    return Series(
        name=name,
        points=[(step, e[number]) for step, e in measured.items()],
        intervals=[tuple(interval) for interval in intervals] if all(intervals) else [],
    )
