"""Chooses the body for a model folder: the native decoder where it fits, else ``transformers``."""

import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.policies import Body
from posttrain.policies._shape import Shape, not_native
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import Folder, Origin, check_context


def read_body(folder: Folder, dtype: torch.dtype, context: int | None) -> tuple[Body, Origin]:
    """A body with a folder's weights, on the CPU. Raises `UserError` when they do not fit the config."""
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
    stored: dict[str, torch.dtype] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in folder.tensors():
        if name.endswith("rotary_emb.inv_freq"):
            continue  # Older checkpoints hold this function of the config.
        if name == "lm_head.weight" and shape.tied:
            stored[name] = tensor.dtype  # A copy of the embedding, written back as one.
            continue
        if name not in wanted:
            raise UserError(f"'{folder.path}' holds a tensor '{name}' that its config.json has no place for")
        if tensor.shape != wanted[name].shape:
            raise UserError(
                f"'{folder.path}': tensor '{name}' is {list(tensor.shape)}, but its config.json makes it "
                f"{list(wanted[name].shape)}"
            )
        stored[name] = tensor.dtype
        state[name] = tensor.to(dtype, copy=True)
    missing = sorted(wanted.keys() - state.keys())
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"'{folder.path}' lacks the tensor '{missing[0]}'{more} that its config.json asks for")
    body.load_state_dict(state, assign=True)
    return body, stored
