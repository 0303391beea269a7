"""Chooses the body for a model folder: the native decoder where it fits, else ``transformers``."""

from collections.abc import Mapping

import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.errors.foreign import shown
from posttrain.policies import Body
from posttrain.policies._shape import Shape, not_native
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import Folder, Origin, check_context


def read_body(folder: Folder, dtype: torch.dtype, context: int | None) -> tuple[Body, Origin]:
    """A body with a folder's weights, on the CPU. Raises `UserError` when they do not fit the config."""
    folder.check_counts()
    reason = not_native(folder.config)
    body: Body
    if reason is None:
        body, stored = _read_decoder(folder, dtype, context)
    else:
        from posttrain.policies.transformers_body import read_transformers_body

        body, stored = read_transformers_body(folder, dtype, context, reason)
    origin = Origin(
        source=str(folder.path.resolve()), config=folder.config_bytes, stored=stored, carried=folder.carried
    )
    return body, origin


def _read_decoder(folder: Folder, dtype: torch.dtype, context: int | None) -> tuple[Decoder, dict[str, torch.dtype]]:
    shape = Shape.from_config(folder.config)
    with torch.device("meta"):
        body = Decoder(shape, context=check_context(context, shape.context))
    wanted = body.state_dict()
    # Older checkpoints hold a function of the config, and some tied models a copy of the embedding.
    held = {name: size for name, size in folder.shapes.items() if not name.endswith("rotary_emb.inv_freq")}
    tied = shape.tied and held.pop("lm_head.weight", None) is not None
    _check_shapes(folder, held, {name: tuple(tensor.shape) for name, tensor in wanted.items()})
    stored: dict[str, torch.dtype] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in folder.tensors():
        if name in held or (tied and name == "lm_head.weight"):
            stored[name] = tensor.dtype
        if name in held:
            if not tensor.is_floating_point():
                raise UserError(
                    f"'{folder.path}': tensor '{name}' holds {tensor.dtype}, which are codes of a quantization that is "
                    "not done here; use the model's own weights"
                )
            state[name] = tensor.to(dtype, copy=True)
    body.load_state_dict(state, assign=True)
    return body, stored


def _check_shapes(folder: Folder, held: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `UserError` for weights that do not fit the config, before any of them is read."""
    for name, shape in held.items():
        if name not in wanted:
            raise UserError(
                f"'{folder.path}' holds a tensor '{shown(name, 150)}' that its config.json has no place for"
            )
        if shape != wanted[name]:
            raise UserError(
                f"'{folder.path}': tensor '{name}' is {list(shape)}, but its config.json makes it {list(wanted[name])}"
            )
    missing = sorted(wanted.keys() - held.keys())
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"'{folder.path}' lacks the tensor '{missing[0]}'{more} that its config.json requires")
