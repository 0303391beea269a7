"""Held-out losses and pairs as text, for the terminal, the summary and the report."""

from collections.abc import Mapping
from typing import Any

from posttrain.runs.amounts import percent

Entry = Mapping[str, Any]

NUMBERS = ("held_out_loss", "perplexity", "pair_accuracy", "pair_margin", "chosen_loss")
"""Numbers of an evaluation by loss that are compared before and after; each has its ``..._interval``."""
SINCE = ("loss_change", "implicit_accuracy")
"""Numbers of an evaluation by loss that compare with the first one themselves."""


def numbers_of(before: Entry | None, after: Entry | None) -> dict[str, Any]:
    """The entries of a summary: those of both evaluations that were measured."""
    found: dict[str, Any] = {}
    for when, evaluation in (("before", before), ("after", after)):
        for name in NUMBERS:
            if evaluation is not None and evaluation.get(name) is not None:
                found |= {f"{name}_{when}{end}": evaluation[f"{name}{end}"] for end in ("", "_interval")}
    for name in SINCE:
        if after is not None and after.get(name) is not None:
            found |= {f"{name}{end}": after[f"{name}{end}"] for end in ("", "_interval")}
    return found


def describe_losses(evaluation: Entry) -> list[str]:
    """``loss 1.234 [1.100, 1.300] nats a token, perplexity 3.4, of 50 demonstrations``, and the same of pairs."""
    parts = []
    if evaluation.get("demonstrations"):
        parts.append(
            f"loss {_number(evaluation, 'held_out_loss')} nats a token, perplexity {evaluation['perplexity']:.3g}, of "
            f"{evaluation['demonstrations']:,} demonstrations"
        )
    if evaluation.get("pairs"):
        accuracy = percent(evaluation["pair_accuracy"], evaluation["pair_accuracy_interval"])
        parts.append(f"the chosen completion is likelier in {accuracy} of {evaluation['pairs']:,} pairs")
    return parts


def sentences(before: Entry | None, after: Entry | None) -> list[str]:
    """What was measured before and after a run, in a sentence for demonstrations and one for pairs."""
    last = after or before or {}
    both = before is not None and after is not None and before is not after
    found = []
    if last.get("demonstrations"):
        text = f"Held-out loss of {last['demonstrations']:,} demonstrations, in nats a token: "
        was = f"{_number(before, 'held_out_loss')} before, " if both and before is not None else ""
        text += f"{was}{_number(last, 'held_out_loss')} after"
        if both and last.get("loss_change") is not None:
            text += f", a change of {_number(last, 'loss_change', signed=True)}"
        found.append(f"{text} (perplexity {last['perplexity']:.3g}).")
    if last.get("pairs"):
        accuracies = [
            percent(e["pair_accuracy"], e["pair_accuracy_interval"]) for e in ((before, last) if both else (last,)) if e
        ]
        when = f"{accuracies[0]} before, {accuracies[1]} after" if both else f"{accuracies[0]}"
        text = f"Of {last['pairs']:,} held-out pairs the chosen completion is likelier than the rejected one in {when}"
        if both and last.get("implicit_accuracy") is not None:
            gained = percent(last["implicit_accuracy"], last["implicit_accuracy_interval"])
            text += f"; in {gained} it has become likelier in comparison"
        found.append(f"{text}.")
    return found


def _number(evaluation: Entry, name: str, *, signed: bool = False) -> str:
    """``1.234 [1.100, 1.300]``; of a single task without an interval."""
    form = "+.3f" if signed else ".3f"
    ends = evaluation[f"{name}_interval"]
    return f"{evaluation[name]:{form}}" + (f" [{ends[0]:{form}}, {ends[1]:{form}}]" if ends else "")
