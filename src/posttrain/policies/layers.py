"""Hidden states by layer, and hooks that replace what a layer gives to the next one.

The state after layer i, counted from 0, is the residual stream after its attention and MLP; that after the last one is
before the last norm. Replaced states go through sampling too, where the modules then decode without kernels. Gradients
follow what the replacement does: one that has no gradient leaves none for the layers up to its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.policies import Body, Packed
from posttrain.policies.decoder import Decoder

Change = Callable[[Tensor], Tensor]
"""[R, D] (or [N, L, D]) what replaces the states of some tokens, row by row; rows of padding are among them."""


def layers_of(body: Body) -> Sequence[nn.Module]:
    """The layers of a body. Raises `UserError` for a body of `transformers` whose layers are not in one list."""
    if isinstance(body, Decoder):
        return list(body.model.layers)
    count = int(getattr(body, "config").num_hidden_layers)  # noqa: B009, a body of transformers
    found = [m for m in body.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if not found:
        raise UserError(f"this model has no list of {count} layers, so the output of one cannot be read or replaced")
    return list(found[0])


def check_layer(body: Body, layer: int) -> None:
    """Raise `UserError` for a layer that a body does not have."""
    count = len(layers_of(body))
    if not 0 <= layer < count:
        raise UserError(f"layer {layer} is named, and the model has {count}, counted from 0; give 0 to {count - 1}")


@contextmanager
def replaced(body: Body, changes: Mapping[int, Change]) -> Iterator[None]:
    """Inside of the block, the output of each of these layers is replaced by the change of it.

    Raises `UserError` for a layer that there is not.
    """
    layers = layers_of(body)
    for layer in changes:
        check_layer(body, layer)
    handles = [layers[layer].register_forward_hook(_hook(change)) for layer, change in changes.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hook(change: Change) -> Callable[[nn.Module, Any, Any], Any]:
    """A forward hook for layers of the native decoder, which give a sum in two parts, and of `transformers`."""

    def hook(module: nn.Module, given: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return change(output)
        first, *rest = output
        if len(rest) == 1 and isinstance(rest[0], Tensor) and rest[0].shape == first.shape:
            changed = change(first + rest[0])
            return changed, torch.zeros_like(changed)
        return (change(first), *rest)

    return hook


def states(body: Body, packed: Packed, layers: Sequence[int]) -> dict[int, Tensor]:
    """By layer, [L, D] the states of packed tokens after it; differentiable. For the native decoder."""
    assert isinstance(body, Decoder) and packed.after is None, "rows of other bodies are padded, shared ones doubled"
    found: dict[int, Tensor] = {}

    def keep(layer: int) -> Change:
        def change(state_RD: Tensor) -> Tensor:
            found[layer] = state_RD[: len(packed.token_ids_L)]
            return state_RD

        return change

    with replaced(body, {layer: keep(layer) for layer in layers}):
        body.hidden(packed)
    return found
