"""One new token of each sequence through the native decoder, on kernels: no gradients, no modules, nothing in between.

Bit for bit what the decoder's own modules give when they run on the same kernels; at this size half of their time goes
into calling them.

R rows (B sequences, and padding up to a multiple of 16), D width.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain import kernels
from posttrain.policies._attention import pad_rows
from posttrain.policies._cache import KeyValueCache

if TYPE_CHECKING:
    from posttrain.policies.decoder import Decoder, Layer


def can_decode(body: "Decoder", cache: KeyValueCache) -> bool:
    """Whether the kernels do, and every matrix is a plain one (adapters are modules of another kind)."""
    return cache.for_kernel and all(type(linear) is nn.Linear for linear in _linears(body))


@torch.no_grad()
def decode(body: "Decoder", cache: KeyValueCache, slots: Sequence[int], token_ids_B: Tensor) -> Tensor:
    """[B, D] last hidden states after appending a token to each slot, in which there is room."""
    lengths = [cache.lengths[slot] for slot in slots]
    page_BP = torch.from_numpy(cache.table(slots, max(lengths) + 1))
    length_B, table = torch.tensor(lengths), body.rotations(max(lengths) + 1, token_ids_B.device)
    x_RD = pad_rows(F.embedding(token_ids_B, body.model.embed_tokens.weight))
    y_RD, delta_RD = torch.empty_like(x_RD), None
    layer: Layer
    for number, layer in enumerate(body.model.layers):  # type: ignore[assignment]
        attention, mlp = layer.self_attn, layer.mlp
        kernels.add_norm_(x_RD, delta_RD, layer.input_layernorm, y_RD)
        query, key, value = (
            _apply(linear, y_RD).view(len(x_RD), -1, attention.head_dim)
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q_norm, k_norm = attention.q_norm, attention.k_norm
        turning = kernels.Turning(
            query_weight=q_norm.weight if isinstance(q_norm, nn.RMSNorm) else None,
            key_weight=k_norm.weight if isinstance(k_norm, nn.RMSNorm) else None,
            eps=getattr(q_norm, "eps", 0.0),
            table=table,
        )
        out = query.new_empty(len(x_RD), query.shape[1] * query.shape[2])
        out[len(lengths) :] = 0.0
        kernels.decode_attention(
            query, key, value, cache.keys[number], cache.values[number], page_BP, length_B, out, turning
        )
        kernels.add_norm_(x_RD, _apply(attention.o_proj, out), layer.post_attention_layernorm, y_RD)
        gate_RD = _apply(mlp.gate_proj, y_RD)
        kernels.gated_(gate_RD, _apply(mlp.up_proj, y_RD))
        delta_RD = _apply(mlp.down_proj, gate_RD)
    kernels.add_norm_(x_RD, delta_RD, body.model.norm, y_RD)
    return y_RD[: len(lengths)]


def _apply(linear: Any, x: Tensor) -> Tensor:
    return F.linear(x, linear.weight, linear.bias)


def _linears(body: "Decoder") -> Iterator[nn.Module]:
    layer: Layer
    for layer in body.model.layers:  # type: ignore[assignment]
        attention, mlp = layer.self_attn, layer.mlp
        yield from (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        yield from (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
