"""The measured experiments of a method, from the files of its comparisons.

    docs/measured/experiments/NAME.json    output of `posttrain compare`, with title, rows, a sentence and the command;
                                           or the table of a script in docs/experiments

Where agents are trained, the file has a second table, ``episodes``: what held-out episodes of each arm were like
(docs/experiments/episodes.py).

An installed package has no such folder, and its pages have no experiments.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from posttrain.recipes.catalogue import PACKAGE
from posttrain.recipes.pages.markdown import table

MEASURED: Final = PACKAGE.parents[1] / "docs" / "measured" / "experiments"
EPISODES: Final = ("success", "turns", "calls", "tokens", "regret")
"""Columns of a table of held-out episodes: the share that is solved, and means of turns, of calls of tools, of sampled
tokens, and of what is missed of the optimum."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One comparison of recipes over seeds, or the table of a script."""

    name: str
    title: str
    rows: tuple[int, ...]
    """Rows of the catalogue of methods that it covers."""
    text: str
    command: str
    measures: tuple[str, ...] = ()
    contenders: tuple[Mapping[str, Any], ...] = ()
    """For each recipe its spread and difference by measure, with the first recipe as the base; empty for a script."""
    columns: tuple[str, ...] = ()
    table: tuple[Sequence[str], ...] = ()
    """Results of a script."""
    episodes: Mapping[str, Any] = field(default_factory=dict)
    """Table, text and command of the held-out episodes; empty where there are none."""

    @property
    def has_curves(self) -> bool:
        """Whether values of every step are available, not only those of whole runs."""
        return any("curves" in contender for contender in self.contenders)


@cache
def all_experiments(folder: Path = MEASURED) -> tuple[Experiment, ...]:
    """Every stored experiment, ordered by name; empty if there is no such folder."""
    return tuple(read(path) for path in sorted(folder.glob("*.json")))


def read(path: Path) -> Experiment:
    """One file of measurements."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Experiment(
        name=path.stem,
        title=found["title"],
        rows=tuple(found["rows"]),
        text=found.get("said", ""),
        command=found["command"],
        measures=tuple(found.get("measures", ())),
        contenders=tuple(found.get("contenders", ())),
        columns=tuple(found.get("columns", ())),
        table=tuple(found.get("table", ())),
        episodes=found.get("episodes", {}),
    )


def section(experiment: Experiment, *, level: int, pictures: str | None = None) -> Iterator[str]:
    """Heading, sentence, picture, table and command of an experiment, as blocks of Markdown.

    `pictures` is the folder of its picture, relative to the page; without it there is none.
    """
    yield f"{'#' * level} {experiment.title}"
    if experiment.text:
        yield experiment.text
    if experiment.contenders and pictures is not None:
        what = "curves, mean of the seeds with 95 % interval" if experiment.has_curves else "seeds, mean, 95 % interval"
        yield f"![{experiment.title}: {what}]({pictures}/{experiment.name}.svg)"
    yield outcome(experiment)
    yield f"```text\n{experiment.command}\n```"
    if own := experiment.episodes:
        if own["said"]:
            yield own["said"]
        yield table(("held-out episodes", *EPISODES), own["table"])
        yield f"```text\n{own['command']}\n```"


def outcome(experiment: Experiment) -> str:
    """The table of an experiment: means with intervals, and the differences from the first row."""
    if not experiment.contenders:
        return table(experiment.columns, experiment.table)
    measures = (*experiment.measures, "sampled_tokens")
    rows = [
        (f"`{row['contender']}`", len(row["seeds"]), *(spread(row[measure]) for measure in measures))
        for row in experiment.contenders
    ]
    return table(("", "seeds", *experiment.measures, "sampled tokens"), rows)


def spread(found: Mapping[str, Any] | None) -> str:
    """A mean with its interval, and the difference from the first row; bold where its interval excludes zero."""
    if found is None:
        return ""
    text = f"{found['mean']:.4g}"
    if found["interval"]:
        text += " [{:.4g}, {:.4g}]".format(*found["interval"])
    other = found.get("difference")
    if not other or not other["interval"]:
        return text
    low, high = other["interval"]
    difference = f"{other['value']:+.3g} [{low:+.3g}, {high:+.3g}]"
    return f"{text}; **{difference}**" if low > 0 or high < 0 else f"{text}; {difference}"
