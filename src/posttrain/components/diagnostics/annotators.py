"""How reliable annotators of pairs are: agreement, and each one's scale and preference for a place.

Every annotator's preferences are explained by the merits that all others' preferences give the answers
(`posttrain.statistics.annotators`), so that nobody confirms oneself: with scale_a and offset_a,

    log-odds that the first is preferred = scale_a (theta_first - theta_second) + offset_a

The verdict is ``reliable`` where the interval of the scale (95 %, errors by prompt) is above 0, ``reversed`` where it
is below, ``prefers the first`` or ``the second`` where that of the offset excludes 0 and is beyond half a nat, and
``random`` where neither is shown by at least 50 comparisons; with fewer it is ``too little``. Cohen's kappa is with
each other annotator of the same pairs, averaged by their number; Krippendorff's alpha is of all.

    posttrain diagnose annotators tasks=pairs.jsonl
    # columns: prompt, chosen, rejected, annotator; first (chosen or rejected: which was shown first; without it the
    # place is not known, and offsets are not fitted)
    posttrain diagnose annotators tasks='{kind: traits, size: 60, annotators: [noise, noise, [reversal, noise]]}'

The answers' merits with everyone's scale are in the JSON, the best answer of each prompt first.

Source: Bradley and Terry 1952, doi:10.2307/2334029, with a scale of each annotator as in Chen et al. 2013,
doi:10.1145/2433396.2433420, and an offset for the place shown first; kappa is Cohen's, 1960,
doi:10.1177/001316446002000104. The bounds of the verdicts are ours.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from posttrain.component import frozen, nearest
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.statistics.annotators import Comparison, Merits, alpha, connected, kappa, merits
from posttrain.statistics.logistic import regress
from posttrain.types import Preference, Task

ENOUGH = 50
"""Comparisons of an annotator without an effect who is called random."""
LEAST_OFFSET = 0.5
"""Nats of an offset that is named."""


@frozen
class Annotators(Diagnostic):
    """Agreement, scale and offset of everyone who compared answers."""

    subjects: ClassVar[tuple[str, ...]] = ()

    tasks: Tasks
    """Pairs with an annotator."""

    def examine(self, *subjects: Subject) -> Finding:
        """Fit and compare."""
        read = _Read(self.tasks.load())
        fitted = merits(read.comparisons, len(read.items), len(read.names), offsets=read.placed)
        rows = {name: self._annotator(read, number) for number, name in enumerate(read.names)}
        values = {
            "comparisons": len(read.comparisons),
            "answers": len(read.items),
            "alpha": alpha(list(read.units.values())),
            "annotators": rows,
            "merits": _ranked(read, fitted),
            "unconnected": _unconnected(read),
        }
        return Finding(values=values, lines=_lines(values))

    def _annotator(self, read: "_Read", number: int) -> dict[str, Any]:
        """The numbers of one annotator, by the merits that the others give."""
        own = [(j, prompt) for j, prompt in zip(read.comparisons, read.prompts, strict=True) if j.annotator == number]
        others = [j for j in read.comparisons if j.annotator != number]
        row: dict[str, Any] = {"comparisons": len(own), "kappa": read.kappa(number)}
        if not others or len({prompt for _, prompt in own}) < 2:
            return {**row, "verdict": "too little"}
        fitted = merits(others, len(read.items), len(read.names), offsets=read.placed)
        gap_N = np.array([fitted.merit_I[j.first] - fitted.merit_I[j.second] for j, _ in own])
        columns = [gap_N, np.ones(len(gap_N))] if read.placed else [gap_N]
        won_N = np.array([float(j.first_wins) for j, _ in own])
        effects = regress(np.stack(columns, 1), won_N, [prompt for _, prompt in own]).effects
        for name, effect in zip(("scale", "offset"), effects, strict=False):
            interval = effect.interval()
            row |= {name: effect.value, f"{name}_interval": [interval.low, interval.high]}
        return {**row, "verdict": _verdict(row)}


def _verdict(row: Mapping[str, Any]) -> str:
    """What an annotator is called."""
    low, high = row["scale_interval"]
    found = ["reliable"] if low > 0 else ["reversed"] if high < 0 else []
    if (
        "offset" in row
        and abs(row["offset"]) > LEAST_OFFSET
        and row["offset_interval"][0] * row["offset_interval"][1] > 0
    ):
        found.append(f"prefers the {'first' if row['offset'] > 0 else 'second'}")
    return ", ".join(found) or ("random" if row["comparisons"] >= ENOUGH else "too little")


class _Read:
    """Comparisons, with the names of what they are about."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Raises `UserError` for rows without an annotator, and for data of one annotator."""
        self.items: dict[tuple[str, str], int] = {}
        self.names: dict[str, int] = {}
        self.comparisons: list[Comparison] = []
        self.prompts: list[str] = []
        self.units: dict[Any, dict[Any, Any]] = defaultdict(dict)
        firsts = {_first(task, pair) for task in tasks for pair in task.preferences}
        self.placed = firsts <= {"chosen", "rejected"}
        if not self.placed and firsts != {None}:
            raise UserError("the column 'first' states which answer was shown first, chosen or rejected, in every row")
        for task in tasks:
            for pair in task.preferences:
                self._add(task, pair)
        if len(self.names) < 2:
            raise UserError(
                f"the data has pairs of {len(self.names)} annotators, and annotators are compared with one another; "
                "give rows with prompt, chosen, rejected and annotator, of at least two"
            )

    def _add(self, task: Task, pair: Preference) -> None:
        name, chosen, rejected = pair.annotator, pair.chosen, pair.rejected
        if name is None:
            raise UserError(
                f"task {task.key}: a pair has no annotator, where a name is needed; {nearest('annotator', task.fields)}"
            )
        prompt = task.prompt if isinstance(task.prompt, str) else "\n".join(m["content"] for m in task.prompt)
        better, worse = (self.items.setdefault((prompt, text), len(self.items)) for text in (chosen, rejected))
        number = self.names.setdefault(name, len(self.names))
        # Without a place the smaller number comes first, which carries no information about the label.
        chosen_first = _first(task, pair) == "chosen" if self.placed else better < worse
        shown = (better, worse) if chosen_first else (worse, better)
        self.comparisons.append(Comparison(*shown, annotator=number, first_wins=chosen_first))
        self.prompts.append(prompt)
        self.units[frozenset((better, worse))][number] = better

    def kappa(self, number: int) -> float | None:
        """The mean over the other annotators, by the number of pairs that both compared."""
        found = []
        for other in set(self.names.values()) - {number}:
            both = [(key, unit) for key, unit in self.units.items() if {other, number} <= unit.keys()]
            labels = [(unit[number] == min(key), unit[other] == min(key)) for key, unit in both]
            value = kappa(labels)
            if value is not None:
                found.append((value, len(labels)))
        return sum(v * n for v, n in found) / sum(n for _, n in found) if found else None


def _first(task: Task, pair: Preference) -> Any:
    """Which text of a pair was shown first, if that is known."""
    return pair.fields.get("first", task.fields.get("first"))


def _unconnected(read: _Read) -> list[str]:
    """Prompts with answers that no chain of comparisons connects."""
    part = connected(read.comparisons, len(read.items))
    parts: dict[str, set[int]] = defaultdict(set)
    for (prompt, _), number in read.items.items():
        parts[prompt].add(part[number])
    return [prompt for prompt, own in parts.items() if len(own) > 1]


def _ranked(read: _Read, fitted: Merits) -> list[dict[str, Any]]:
    """Answers by prompt, the best first."""
    by_prompt: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (prompt, text), number in read.items.items():
        by_prompt[prompt].append((float(fitted.merit_I[number]), text))
    return [
        {"prompt": prompt, "answers": [{"text": text, "merit": merit} for merit, text in sorted(own, reverse=True)]}
        for prompt, own in by_prompt.items()
    ]


def _lines(values: Mapping[str, Any]) -> list[str]:
    """A line of each annotator."""
    whole = "" if values["alpha"] is None else f"; Krippendorff's alpha {values['alpha']:.2f}"
    lines = [f"{values['comparisons']} comparisons of {values['answers']} answers{whole}"]
    if loose := values["unconnected"]:
        lines.append(
            f"{len(loose)} prompts have answers that no chain of comparisons connects, the first is {loose[0]!r:.60}; "
            "their merits are known within each part only, so that a ranking of all is the prior's: compare answers of "
            "different parts"
        )
    for name, row in values["annotators"].items():
        cells = [f"{row['comparisons']} comparisons"]
        for part in ("scale", "offset"):
            if part in row:
                low, high = row[f"{part}_interval"]
                cells.append(f"{part} {row[part]:.2f} [{low:.2f}, {high:.2f}]")
        if row["kappa"] is not None:
            cells.append(f"kappa {row['kappa']:.2f}")
        lines.append(f"{name}: {row['verdict']} ({', '.join(cells)})")
    return lines
