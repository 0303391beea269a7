"""Merge models of the same shape into one Hugging Face folder.

MODELS are bundled names, Hugging Face folders or folders of runs; after them come settings of the method as name=value.
Sums are in float64; the new model is stored in the type of the first one. Config, tokenizer and chat template are the
first one's. Methods: posttrain list merge.

    posttrain merge runs/sft-1 runs/sft-2 --out soup
    posttrain merge runs/sft-1 runs/sft-2 weights=[0.8,0.2] --out soup-of-80-20
"""

from pathlib import Path
from typing import Literal

import click

from posttrain.cli._completion import complete_model
from posttrain.cli._output import print_json, verb


@verb
@click.argument("models", nargs=-1, required=True, shell_complete=complete_model)
@click.option("--method", default="soup", show_default=True, help="How the weights are combined.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write.")
def command(models: tuple[str, ...], method: str, out: Path, as_json: bool) -> None:
    """Loads, merges, writes."""
    import torch

    from posttrain.cli._component import component, split_settings
    from posttrain.components.merges import Merge
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies.loading import load_language_model
    from posttrain.policies.merging import merge
    from posttrain.runs.launch import model_source

    names, settings = split_settings(models)
    rule = component(Merge, method, settings)
    if len(names) < 2:
        raise UserError(f"got {len(names)} model to merge; name at least two")
    if len(set(names)) < len(names):
        raise UserError(f"a model is named twice among {', '.join(names)}; give it more weight instead")
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"'{out}' is not empty; name a new folder")
    device = torch.device("cpu")
    loaded = {name: load_language_model("policy", Model(source=model_source(name)), {}, device) for name in names}
    stored = {dtype for dtype in loaded[names[0]].origin.stored.values() if dtype.is_floating_point}
    dtype: Literal["bfloat16", "float32"] = "bfloat16" if stored == {torch.bfloat16} else "float32"
    merged = merge("policy", Model(source="made", dtype=dtype), loaded, rule)
    merged.policy.save(out)
    if as_json:
        print_json({"model": str(out), "method": rule.kind, "dtype": dtype, "distances": dict(merged.distances)})
        return
    for name, distance in merged.distances.items():
        click.echo(f"{distance:.3g} of its norm away from {name}")
    click.echo(f"wrote {out} ({dtype})")
