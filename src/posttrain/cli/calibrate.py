"""Calibrate a judge: which probability do its margins stand for?

GOLD has pairs (prompt, chosen, rejected) or rated answers (prompt, completion, rating of 1 or 0). Platt's method fits a
slope to the margins of pairs in both orders, or slope and offset to the scores of answers. The errors that are printed
are of folds that it was not fitted to, whose prompts it has not seen; what is written is fitted to all.

    posttrain calibrate likelihood gold.jsonl --model SmolLM2-135M-Instruct --out likelihood.json
    posttrain calibrate planted:overconfident gold.jsonl
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._completion import role_models
from posttrain.cli._output import print_json, trusting, verb

if TYPE_CHECKING:
    from posttrain.cli._judge import Opened
    from posttrain.types import Task


@verb
@trusting
@click.argument("judge")
@click.argument("gold")
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@role_models("A model of the reward.")
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="A file that keeps verdicts on pairs.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file for the calibration, FILE.json.")
@click.option("--folds", default=5, show_default=True, type=click.IntRange(2, 100))
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
def command(
    judge: str,
    gold: str,
    settings: tuple[str, ...],
    models: tuple[str, ...],
    store: Path | None,
    out: Path | None,
    folds: int,
    device: str,
    as_json: bool,
) -> None:
    """Requests verdicts, fits, measures on held-out folds, prints."""
    from posttrain.audit.judges.calibrating import calibrate
    from posttrain.cli._judge import open_judge, show_endpoints, tasks_of
    from posttrain.errors import UserError

    if out is not None and (out.suffix != ".json" or not out.absolute().parent.is_dir()):
        raise UserError(f"--out {out}: the calibration is JSON; name a file FILE.json in a folder there is")
    tasks = tasks_of(gold)
    opened = open_judge(judge, settings, models, device)
    pairs = any(task.preferences for task in tasks)
    labelled = _of_pairs(opened, tasks, store) if pairs else _of_ratings(opened, tasks)
    show_endpoints(opened)
    found = calibrate(labelled, symmetric=pairs, folds=folds)
    result = {"judge": judge, "of": "margins of pairs" if pairs else "scores of answers", **found.as_json()}
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(result)
        return
    click.echo(f"P = sigmoid({found.fitted.slope:.4g} x {found.fitted.offset:+.4g}), from {found.labels} labels")
    click.echo(
        f"held out, {folds} folds: calibration error {found.error:.3f}, as is {found.raw_error:.3f}, by isotonic "
        f"regression {found.isotonic_error:.3f}; Brier score {found.brier:.3f}, as is {found.raw_brier:.3f}"
    )


def _of_pairs(opened: "Opened", tasks: "Sequence[Task]", store: Path | None) -> list[tuple[float, bool, str]]:
    """The margin of the chosen answer in each order, and its prompt."""
    from posttrain.audit.judges import gold_pairs
    from posttrain.audit.judges.measures import ask
    from posttrain.cli._judge import kept

    asked = ask(kept(opened, store)[0], gold_pairs(tasks))
    both = [(one.pair.cluster, (one.first.margin, one.second.margin)) for one in asked]
    signed = [(m, sign, cluster) for cluster, own in both for m, sign in zip(own, (1, -1), strict=True)]
    return [(m * sign, True, cluster) for m, sign, cluster in signed if m is not None]


def _of_ratings(opened: "Opened", tasks: "Sequence[Task]") -> list[tuple[float, bool, str]]:
    """The score of every rated answer, whether it is right, and its prompt."""
    from posttrain.audit.judges import prompt_of
    from posttrain.errors import UserError

    rows = []
    for task in tasks:
        if off := [rated.rating for rated in task.rated if rated.rating not in (0, 1)]:
            raise UserError(
                f"task {task.key}: a rating for calibration is 1 (right) or 0 (wrong), not {off[0]:g}; it is not cut "
                "to that scale, since another one has another meaning: convert it first"
            )
        texts = [rated.completion for rated in task.rated]
        scores: Sequence[Any] = opened.scorer.scores(task, texts) if texts else ()
        for rated, score in zip(task.rated, scores, strict=True):
            if math.isfinite(score.value):
                rows.append((score.value, rated.rating == 1, prompt_of(task)))
    if not rows:
        raise UserError(
            f"the gold data has neither pairs nor rated answers that the judge can score, in {len(tasks)} rows; give "
            "the columns prompt, chosen and rejected, or prompt, completion and rating (the number 1 or 0)"
        )
    return rows
