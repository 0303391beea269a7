"""The largest attention logits of the heads of a native decoder, and how they are bounded (`hooks/qk_clip`).

H query heads, L tokens, d width of a head.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posttrain import kernels
from posttrain.errors import UserError
from posttrain.policies import Packed, Policy
from posttrain.policies._modules import Attention, Layer
from posttrain.policies.decoder import Decoder
from posttrain.types import IntArray


@torch.no_grad()
def bound(policy: Policy, texts: Sequence[IntArray], tau: float) -> None:
    """Scale the query and key weights of heads whose largest logit in the texts is above `tau`, so that it is `tau`.

    Both take the square root; where heads share a key, the query takes all, so that other heads keep theirs.
    """
    for attention, largest_H in largest_logits(policy, texts):
        gamma_H = (tau / largest_H.clamp(min=tau)).to(attention.q_proj.weight)
        if not bool((gamma_H < 1).any()):
            continue
        shared = len(gamma_H) != attention.k_proj.out_features // attention.head_dim
        _scale(attention.q_proj, gamma_H if shared else gamma_H.sqrt(), attention.head_dim)
        if not shared:
            _scale(attention.k_proj, gamma_H.sqrt(), attention.head_dim)


def _scale(projection: nn.Linear, factor_H: Tensor, width: int) -> None:
    """Multiply the outputs of each head."""
    factor_A = factor_H.repeat_interleave(width)
    projection.weight.mul_(factor_A[:, None])
    if projection.bias is not None:
        projection.bias.mul_(factor_A)


def largest_logits(policy: Policy, texts: Sequence[IntArray]) -> list[tuple[Attention, Tensor]]:
    """For each layer its attention, and [H] the largest logit of each head over causal pairs of tokens in the texts.

    Raises `UserError` for a model that has norms of queries and keys, or no layers of the native decoder.
    """
    body = policy.body
    if not isinstance(body, Decoder) or body.shape.qk_norm:
        why = "norms of queries and keys, which bound its logits" if isinstance(body, Decoder) else "no native decoder"
        raise UserError(f"hooks.kind=qk_clip: the model of the role '{policy.role}' has {why}; leave the hook out")
    layers = [layer for layer in body.model.layers if isinstance(layer, Layer)]
    found: dict[int, Tensor] = {}
    length = 0

    def measure(module: nn.Module, given: Any) -> None:
        assert isinstance(module, Attention), "it is registered for these"
        x_RD, rotation = given[0], given[1]
        query, key = (
            kernels.rotate(project(x_RD).unflatten(1, (-1, module.head_dim)), norm, rotation)[:length].float()
            for project, norm in ((module.q_proj, module.q_norm), (module.k_proj, module.k_norm))
        )
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        logits_HLL = torch.einsum("ihd,jhd->hij", query, key) * module.head_dim**-0.5
        later = torch.ones(length, length, dtype=torch.bool, device=logits_HLL.device).triu(1)
        own_H = logits_HLL.masked_fill(later, -torch.inf).amax((1, 2))
        found[module.layer] = torch.maximum(found[module.layer], own_H) if module.layer in found else own_H

    handles = [layer.self_attn.register_forward_pre_hook(measure) for layer in layers]
    watched = [layer.watched for layer in layers]
    for layer in layers:
        layer.watched = True
    try:
        with torch.no_grad():
            device = next(body.parameters()).device
            for text in texts:
                length = len(text)
                ids = torch.as_tensor(text, dtype=torch.int64, device=device)
                body.hidden(Packed(token_ids_L=ids, starts=(0, length)))
    finally:
        for handle in handles:
            handle.remove()
        for layer, was in zip(layers, watched, strict=True):
            layer.watched = was
    return [(layer.self_attn, found[place]) for place, layer in enumerate(layers) if place in found]
