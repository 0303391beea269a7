"""Merge models of the same shape into one Hugging Face folder, or measure what a merge of them does.

MODELS are bundled names, Hugging Face folders or folders of runs; after them come settings of the method as name=value.
Sums are in float64; the new model is stored in the type of the first one. Config, tokenizer and chat template are the
first one's, which is also the base of methods that add differences. Methods: posttrain list merge.

With --sweep nothing is written: the merge is evaluated at every coefficient, 0 being the first model, on the held-out
tasks of the first model's run, or of a recipe; other name=value pairs then change that recipe. Methods that are
informed by calibration texts (aim, sens) take files with the columns prompt and completion: one, or one for each model
but the first. With --keep a sweep that was interrupted goes on by the same command.

    posttrain merge runs/sft-1 runs/sft-2 --out soup
    posttrain merge runs/sft-1 runs/sft-2 weights=[0.8,0.2] --out soup-of-80-20
    posttrain merge SHORT LONG --method ties rate=0.8 --out merged
    posttrain merge SHORT LONG --method ties --sweep 0:1:0.05 evaluation.holdout=500 --keep points.json
    posttrain merge SHORT LONG --method aim --calibration worked.jsonl --out merged
"""

import re
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli._completion import complete_model
from posttrain.cli._output import KEEP_HELP, print_json, trusting, verb

if TYPE_CHECKING:
    from posttrain.runs.merging import Point

HEADING = f"{'coefficient':>11} {'accuracy':>9} {'95 %':>15} {'tokens':>7} {'cut':>6} {'reflective':>10}"


@verb
@trusting
@click.argument("models", nargs=-1, required=True, shell_complete=complete_model)
@click.option("--method", default="soup", show_default=True, help="How the weights are combined.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder to write.")
@click.option("--sweep", metavar="FROM:TO:STEP", help="Evaluate at these coefficients, and write nothing.")
@click.option("--keep", type=click.Path(path_type=Path, dir_okay=False), help=KEEP_HELP)
@click.option("--calibration", multiple=True, metavar="FILE", help="Texts for methods that are informed by them.")
def command(
    models: tuple[str, ...],
    method: str,
    out: Path | None,
    sweep: str | None,
    keep: Path | None,
    calibration: tuple[str, ...],
    as_json: bool,
) -> None:
    """Loads, merges, writes; or merges and evaluates."""
    import torch

    from posttrain.cli._component import component
    from posttrain.components.merges import Merge
    from posttrain.components.tasks import Tasks
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies.merging import open_sources
    from posttrain.runs.merging import calibration_texts, points, points_in, stored_type, write
    from posttrain.runs.merging import sweep as evaluate_at

    names = [word for word in models if not re.match(r"[\w.]+=", word)]
    settings = [word for word in models if word not in names]
    own: set[str] = set(vars(component(Merge, method, []))) if sweep is not None else set()
    changes = [word for word in settings if sweep is not None and word.partition("=")[0] not in own]
    rule = component(Merge, method, [word for word in settings if word not in changes])
    if len(names) < 2:
        raise UserError(f"got {len(names)} model to merge; name at least two")
    if len(set(names)) < len(names):
        raise UserError(f"a model is named twice among {', '.join(names)}; give it more weight instead")
    if keep is not None and sweep is None:
        raise UserError(f"--keep {keep} keeps what a sweep has measured; write --sweep 0:1:0.05")
    if (out is None) == (sweep is None):
        raise UserError("name the folder to write, --out FOLDER, or the coefficients to evaluate, --sweep 0:1:0.05")
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise UserError(f"'{out}' is not empty; name a new folder")
    rule.check(len(names))
    coefficients = points(sweep) if sweep is not None else []
    for coefficient in coefficients:
        rule.at(coefficient).check(len(names))
    files = [component(Tasks, "files", [f"path={path}"]) for path in calibration]
    sources = open_sources({name: Model(source=name) for name in names}, torch.device("cpu"))
    texts = [calibration_texts(sources.policy, file) for file in files]
    if out is not None:
        dtype = stored_type(sources.policy)
        distances = write(sources, rule, texts, out)
        if as_json:
            print_json({"model": str(out), "method": rule.kind, "dtype": dtype, "distances": distances})
            return
        away = [f"{distance:.3g} of its norm away from {name}" for name, distance in distances.items()]
        click.echo("\n".join([*away, f"wrote {out} ({dtype})"]))
        return
    depends = {"models": _digests(names), "method": repr(rule), "changes": changes, "calibration": _sums(calibration)}
    kept = points_in(keep, depends)
    click.echo(HEADING, err=as_json)
    show = partial(_show, err=as_json)
    found = evaluate_at(sources, rule, coefficients, changes, texts, kept=kept, on_point=show)
    if as_json:
        print_json({"method": rule.kind, "models": names, "points": [vars(point) for point in found]})


def _sums(paths: Sequence[str]) -> list[str]:
    """SHA-256 of files; the name of what is none."""
    return [sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else path for path in paths]


def _digests(names: Sequence[str]) -> dict[str, str]:
    """The digest of each model's files, by its name."""
    from posttrain.models import Model
    from posttrain.policies.loading import folder_of
    from posttrain.runs.changes import digest_of_model

    return {name: digest_of_model(folder_of("policy", Model(source=name))) for name in names}


def _show(point: "Point", *, err: bool) -> None:
    """One row of the table of a sweep, on standard error where the output is JSON."""
    summary = point.summary
    accuracy, interval = summary["accuracy"], summary["accuracy_interval"]
    right = "-" if accuracy is None else f"{accuracy:.1%}"
    between = "-" if interval is None else f"{interval[0]:.1%} - {interval[1]:.1%}"
    length, cut = summary["mean_tokens"], summary["truncated"]
    click.echo(
        f"{point.coefficient:>11g} {right:>9} {between:>15} {length:>7.1f} {cut:>6.1%} {point.reflective:>10.1%}",
        err=err,
    )
