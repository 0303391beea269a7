"""Edit a few rows of a model's weights away from a behaviour that labelled texts show, without training it.

MODEL is a Hugging Face folder, a bundled name or the folder of a run; --away is a file with the columns text and label,
where 1 is the behaviour to avoid. Settings of the edit follow as name=value; kinds: posttrain list edit.

With --out the edited model is written: the same files with the bytes of these rows changed, and the original rows in
edit.safetensors. --undo writes a folder whose weight files are the original ones, byte by byte. With --sweep nothing is
written: samples and likelihoods are measured at each strength, also negative ones, next to controls of equal size: rows
from the other end of the ranking, random rows, a random direction. Samples are scored by a classifier of words that is
fitted to the texts, not by the probe. With --keep a sweep that was interrupted goes on by the same command.

    posttrain edit MODEL --away texts.jsonl --sweep
    posttrain edit MODEL --away texts.jsonl --sweep 6:-6:-3 --keep effects.json
    posttrain edit MODEL --away texts.jsonl alpha=2 --out edited
    posttrain edit edited --undo --out original
"""

import re
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli._completion import complete_model
from posttrain.cli._output import KEEP_HELP, print_json, verb

if TYPE_CHECKING:
    from posttrain.runs.editing import Effect


@verb
@click.argument("model", shell_complete=complete_model)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--away", metavar="FILE", help="Texts with labels; 1 is to be avoided.")
@click.option("--kind", default="surgery", show_default=True, help="Which edit.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder to write.")
@click.option(
    "--sweep",
    metavar="FROM:TO:STEP",
    is_flag=False,
    flag_value="2:-2:-1",
    help="Measure at these strengths, and write nothing; alone it is 2:-2:-1.",
)
@click.option("--keep", type=click.Path(path_type=Path, dir_okay=False), help=KEEP_HELP)
@click.option("--undo", is_flag=True, help="Put the original rows of an edited folder back.")
def command(
    model: str,
    settings: tuple[str, ...],
    away: str | None,
    kind: str,
    out: Path | None,
    sweep: str | None,
    keep: Path | None,
    undo: bool,
    as_json: bool,
) -> None:
    """Plans, then measures or writes; or undoes."""
    from posttrain.errors import UserError
    from posttrain.policies.folder import open_folder
    from posttrain.runs.editing import folder_named

    for word in settings:
        if not re.match(r"\w+=", word):
            raise UserError(f"'{word}' is not a setting of {kind}; write name=value")
    if (out is None) == (sweep is None):
        raise UserError("name the folder to write, --out FOLDER, or the strengths to measure, --sweep 2:-2:-1")
    if keep is not None and sweep is None:
        raise UserError(f"--keep {keep} keeps what a sweep has measured; write --sweep")
    if undo == (away is not None) or (undo and (settings or sweep)):
        raise UserError("give the texts to edit away from, --away FILE, or --undo without settings and --sweep")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"'{out}' is there and not an empty folder; name a new one")
    if undo:
        from posttrain.policies.editing import write_undone

        assert out is not None, "it was checked"
        count = write_undone(open_folder(folder_named(model)), out)
        print_json({"model": str(out), "rows": count}) if as_json else click.echo(f"wrote {out}, {count} rows undone")
        return
    assert away is not None, "it was checked"
    _edit(model, settings, away, kind, out, sweep, keep, as_json)


def _edit(
    model: str,
    settings: tuple[str, ...],
    away: str,
    kind: str,
    out: Path | None,
    sweep: str | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    import torch

    from posttrain.cli._component import component
    from posttrain.components.edits import Edit
    from posttrain.models import Model
    from posttrain.policies.editing import write_edited
    from posttrain.policies.folder import open_folder
    from posttrain.policies.loading import folder_of, load_language_model
    from posttrain.runs.changes import digest_of_model
    from posttrain.runs.editing import Trial, effects_in, folder_named, read_texts
    from posttrain.runs.editing import sweep as measure_at
    from posttrain.runs.launch import model_source
    from posttrain.runs.merging import points

    edit = component(Edit, kind, settings)
    strengths = points(sweep) if sweep is not None else []
    texts = read_texts(away)
    folder = open_folder(folder_named(model)) if out is not None else None
    policy = load_language_model("policy", Model(source=model_source(model)), {}, torch.device("cpu"))
    trial = Trial(policy, texts)
    plan = trial.plan(edit)
    report = {**plan.report, "word_accuracy": trial.word_accuracy}
    if not as_json:
        for name, value in report.items():
            if not isinstance(value, dict):
                click.echo(f"{name.replace('_', ' ')}: {value:.4g}")
    if folder is not None and out is not None:
        write_edited(folder, plan, out)
        if as_json:
            print_json({"model": str(out), "kind": kind, **report})
        else:
            click.echo(f"wrote {out}, {plan.count} rows changed; undo: posttrain edit {out} --undo --out FOLDER")
        return
    depends = {
        "model": digest_of_model(folder_of("policy", Model(source=model_source(model)))),
        "texts": sha256(repr(texts).encode()).hexdigest(),
        "edit": repr(edit),
    }
    kept = effects_in(keep, depends)
    click.echo(
        f"{'edit':<18} {'strength':>8} {'samples to avoid':>17} {'perplexity':>11} {'of those to avoid':>18}",
        err=as_json,
    )
    found = measure_at(trial, edit, strengths, partial(_show, err=as_json), kept=kept)
    if as_json:
        print_json({"model": model, "kind": kind, **report, "effects": [vars(effect) for effect in found]})


def _show(effect: "Effect", *, err: bool) -> None:
    """One row of the table of a sweep, on standard error where the output is JSON."""
    numbers = f"{effect.away:>17.1%} {effect.perplexity:>11.4g} {effect.perplexity_away:>18.4g}"
    click.echo(f"{effect.edit:<18} {effect.strength:>8g} {numbers}", err=err)
