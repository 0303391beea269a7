"""Edits of rows, in memory and in the files of a model, that can be undone to the bit.

In files only the bytes of the changed rows are replaced, and the original ones are kept beside the model in
``edit.safetensors``: undoing an edit gives back the weight files byte by byte.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from posttrain.components.edits import Plan
from posttrain.errors import UserError
from posttrain.errors.foreign import guard
from posttrain.policies import Packed
from posttrain.policies.folder import Folder, open_weights, write_tensors
from posttrain.policies.language_model import LanguageModelPolicy, root_of

KEPT_FILE: Final = "edit.safetensors"
"""The original rows of an edited folder: by tensor ``NAME|rows``, their numbers, and ``NAME|values``."""
GATES: Final = (r"\.gate_proj\.weight$", r"\.gate_up_proj\.weight$", r"\.w1\.weight$", r"\.up_proj\.weight$")
"""Names of matrices that are edited; of the first kind that a model has. A fused one has its gate in the first half."""
PASS_TOKENS: Final = 4096


def gate_rows(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The gate matrices of a model, experts each for itself, with the number of rows that are the gate's.

    Raises `UserError` for a model without one.
    """
    for pattern in GATES:
        found = {n: s[0] // (2 if "gate_up" in pattern else 1) for n, s in shapes.items() if re.search(pattern, n)}
        if found:
            return found
    raise UserError(
        "this model has no gate and no up-projection by the usual names (gate_proj, gate_up_proj, w1, up_proj), so "
        "there are no rows to edit"
    )


def matrices_of(policy: LanguageModelPolicy) -> dict[str, Tensor]:
    """The gate matrices of a model in memory by their names in its files, [rows, D]."""
    parameters = dict(root_of(policy.body).named_parameters())
    rows = gate_rows({name: tuple(parameter.shape) for name, parameter in parameters.items()})
    return {name: parameters[name].detach()[:count] for name, count in rows.items()}


@torch.no_grad()
def mean_states(policy: LanguageModelPolicy, token_ids: Sequence[Sequence[int]]) -> Tensor:
    """[N, D] mean over its tokens of the last hidden state of each text, after the last norm."""
    device = next(policy.parameters()).device
    found: list[Tensor] = []
    part: list[Sequence[int]] = []
    for i, ids in enumerate(token_ids):
        part.append(ids)
        if i + 1 == len(token_ids) or sum(map(len, part)) + len(token_ids[i + 1]) > PASS_TOKENS:
            starts = [0]
            for own in part:
                starts.append(starts[-1] + len(own))
            flat = torch.tensor([token for own in part for token in own], dtype=torch.int64, device=device)
            hidden = policy.body.hidden(Packed(token_ids_L=flat, starts=tuple(starts)))
            found += [hidden[begin:end].float().mean(0) for begin, end in pairwise(starts)]
            part = []
    return torch.stack(found)


@contextmanager
def edited(policy: LanguageModelPolicy, plan: Plan) -> Iterator[None]:
    """The model with the edit inside of the block, and to the bit as before after it."""
    matrices = matrices_of(policy)
    kept = {name: matrices[name][rows].clone() for name, rows in plan.rows.items() if len(rows)}
    try:
        with torch.no_grad():
            for name, original in kept.items():
                matrices[name][plan.rows[name]] = _changed(original, plan.step_D)
        policy.version += 1
        yield
    finally:
        with torch.no_grad():
            for name, original in kept.items():
                matrices[name][plan.rows[name]] = original
        policy.version += 1


def _changed(rows_RD: Tensor, step_D: Tensor) -> Tensor:
    """The rows plus the step, rounded once to their own type."""
    return (rows_RD.double() + step_D.to(rows_RD.device, torch.float64)).to(rows_RD.dtype)


def write_edited(folder: Folder, plan: Plan, out: Path) -> None:
    """Copy a model's folder with the rows of a plan changed, and their original values beside it."""
    if (folder.path / KEPT_FILE).exists():
        raise UserError(
            f"'{folder.path}' is edited already and keeps its original rows; undo that edit first: posttrain edit "
            f"{folder.path} --undo --out FOLDER"
        )
    shutil.copytree(folder.path, out, dirs_exist_ok=True)
    kept: dict[str, Tensor] = {}
    places = {name: folder.path / file for file, names in folder.shards.items() for name in names}
    for name, rows in plan.rows.items():
        if len(rows):
            with open_weights(places[name]) as file, guard(f"'{places[name]}': tensor '{name}'"):
                original = file.get_tensor(name)[rows]
            kept |= {f"{name}|rows": rows, f"{name}|values": original}
            _write_rows(out / places[name].name, name, rows, _changed(original, plan.step_D))
    write_tensors(out / KEPT_FILE, kept)


def write_undone(folder: Folder, out: Path) -> int:
    """Copy an edited folder with its original rows; returns how many they are.

    Raises `UserError` for a folder that keeps none.
    """
    path = folder.path / KEPT_FILE
    if not path.is_file():
        raise UserError(f"'{folder.path}' has no {KEPT_FILE}, the original rows of an edit, so nothing can be undone")
    shutil.copytree(folder.path, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(KEPT_FILE))
    places = {name: file for file, names in folder.shards.items() for name in names}
    count = 0
    with open_weights(path) as kept, guard(f"'{path}' is not what an edit of this model kept"):
        for key in kept.keys():  # noqa: SIM118, a file of tensors is no mapping
            name, _, what = key.rpartition("|")
            if what == "rows":
                rows, values = kept.get_tensor(key), kept.get_tensor(f"{name}|values")
                _write_rows(out / places[name], name, rows, values)
                count += len(rows)
    return count


def _write_rows(path: Path, name: str, rows: Tensor, values_RD: Tensor) -> None:
    """Replace the bytes of some rows of a tensor in a safetensors file."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[name]
        begin, end = entry["data_offsets"]
        width = (end - begin) // entry["shape"][0]
        raw = values_RD.contiguous().view(torch.uint8).numpy()
        assert raw.shape == (len(rows), width), "rows of the tensor's own type and width"
        for row, content in zip(rows.tolist(), raw, strict=True):
            file.seek(8 + length + begin + row * width)
            file.write(content.tobytes())
