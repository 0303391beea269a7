"""Decoding with the native decoder on a CPU in one call of a kernel, without its modules: one new token of each
sequence, or several, each drawn from the states before it.

The weights are packed for it once. That second copy lives as long as its cache, and is made again when the weights
change.

L layers, B sequences, N tokens, D width.
"""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn

from posttrain import kernels
from posttrain.kernels.layers import Adapted
from posttrain.kernels.rooms import on_lines, shared_room
from posttrain.policies._cache import KeyValueCache
from posttrain.policies._graphs import CapturedDecoding, captured_decoding_of
from posttrain.policies._modules import DecoderModules, Layer
from posttrain.types import IntArray

COPIED_BYTES: Final = 1 << 30
"""Weights up to which a second copy is made; larger ones are read from memory for every token in any layout."""
HEAD_BYTES: Final = 1 << 28
"""The same for the matrix to logits. With its copy tokens are drawn in the kernel, several in one call."""
KEYS, VALUES = 4, 5
"""Places of the addresses of a layer's pages, among those of a layer."""


def decoding_of(body: DecoderModules, cache: KeyValueCache) -> "Decoding | CapturedDecoding | None":
    """The decoding step without modules: on a CPU the weights as they are now, packed for a cache; on a GPU graphs.
    None where there is neither, or a layer has a hook, and the modules decode.
    """
    if any(layer._forward_hooks for layer in body.model.layers):
        return None
    if not cache.for_kernel:
        return captured_decoding_of(body)
    if isinstance(cache.decoding, Decoding) and cache.decoding.is_current:
        return cache.decoding
    if not can_decode(body, cache):
        return None
    cache.decoding = decoding = Decoding(body)
    return decoding


def can_decode(body: DecoderModules, cache: KeyValueCache) -> bool:
    """Whether the kernel can be used: every matrix is a plain one or has an update of low rank, and all are small
    enough.
    """
    linears = [linear for layer in body.model.layers for linear in layer.linears]  # type: ignore[union-attr]
    if not cache.for_kernel or not all(type(x) is nn.Linear or isinstance(x, Adapted) for x in linears):
        return False
    return sum(linear.weight.nbytes for linear in linears if isinstance(linear, nn.Linear)) <= COPIED_BYTES


def packed_bytes_of(body: DecoderModules) -> int:
    """Bytes of the packed weights of a body, where it has a `Decoding`."""
    weight = body.model.embed_tokens.weight
    linears = [linear for layer in body.model.layers for linear in layer.linears]  # type: ignore[union-attr]
    if not kernels.usable(weight) or sum(linear.weight.nbytes for linear in linears) > COPIED_BYTES:
        return 0
    matrices = [linear.weight for linear in linears]
    if weight.nbytes <= HEAD_BYTES:
        matrices.append(weight)
    return sum(on_lines(kernels.packed_bytes(matrix)) for matrix in matrices)


class Decoding:
    """The weights of a decoder as the kernel reads them."""

    def __init__(self, body: DecoderModules) -> None:
        shape = body.shape
        first: Layer = body.model.layers[0]  # type: ignore[assignment]
        sizes = kernels.DecoderSizes(
            width=shape.width,
            heads=shape.heads,
            key_heads=shape.kv_heads,
            head_width=shape.head_dim,
            mlp_width=shape.mlp_width,
            eps=float(first.input_layernorm.eps or 0.0),
            head_eps=float(getattr(first.self_attn.q_norm, "eps", None) or 0.0),
        )
        head = body.model.embed_tokens if shape.tied else body.lm_head
        self._parameters = [p for layer in body.model.layers for p in layer.parameters()]
        self._parameters += head.parameters()
        self._stamp = self._read_stamp()
        self._held: list[Tensor] = []  # what the addresses are of
        self._room = shared_room(packed_bytes_of(body))
        small = type(head) in (nn.Linear, nn.Embedding) and head.weight.nbytes <= HEAD_BYTES
        self.weights = kernels.DecoderWeights(
            sizes=sizes,
            address_LA=torch.tensor([list(self._addresses(layer)) for layer in body.model.layers]),  # type: ignore[arg-type]
            embedding_VD=body.model.embed_tokens.weight.detach(),
            last_norm_D=body.model.norm.weight.detach(),
            head=kernels.packed_matrix(head.weight.detach(), self._room) if small else None,
        )

    def __call__(self, body: DecoderModules, cache: KeyValueCache, slot_B: IntArray, token_ids_B: Tensor) -> Tensor:
        """[B, D] last hidden states after appending a token to each slot, in which there is room."""
        return kernels.decode(self.weights, token_ids_B, *self._where(body, cache, slot_B, 1))

    @property
    def draws(self) -> bool:
        """Whether the kernel of `draw` has the matrix to logits."""
        return self.weights.head is not None

    def draw(
        self,
        body: DecoderModules,
        cache: KeyValueCache,
        slot_B: IntArray,
        token_ids_B: Tensor,
        drawing: kernels.Drawing,
        steps: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Append a token and draw the next one, `steps` times: [B, N] tokens, log-probabilities and entropies. There
        must be a head.
        """
        where = self._where(body, cache, slot_B, steps)
        return kernels.decode_and_draw(self.weights, token_ids_B, *where, drawing, steps)

    def _where(
        self, body: DecoderModules, cache: KeyValueCache, slot_B: IntArray, steps: int
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Pages, lengths and angles."""
        length_B = cache.lengths[slot_B]
        longest = int(length_B.max()) + steps
        for column, stored in ((KEYS, cache.keys), (VALUES, cache.values)):
            self.weights.address_LA[:, column] = torch.tensor([pages.data_ptr() for pages in stored])
        table = torch.from_numpy(cache.table(slot_B, longest))
        return table, torch.from_numpy(length_B), body.rotations(longest, table.device)

    @property
    def is_current(self) -> bool:
        """Whether the weights are still those that were copied: none was changed in place or put elsewhere."""
        return self._read_stamp() == self._stamp

    def _read_stamp(self) -> list[tuple[int, int]]:
        return [(parameter.data_ptr(), parameter._version) for parameter in self._parameters]

    def _addresses(self, layer: Layer) -> Iterator[int]:
        """Addresses of a layer's weights, in the order of the kernel."""
        for norm in layer.norms:
            yield self._address(norm.weight if isinstance(norm, nn.RMSNorm) else None)
        yield from (0, 0)  # pages, which move when there are more of them
        for linear in layer.linears:
            assert isinstance(linear, nn.Linear), "checked by can_decode"
            weight = linear.whole.to(linear.weight.dtype) if isinstance(linear, Adapted) else linear.weight.detach()
            yield self._address(kernels.packed_matrix(weight, self._room))
            yield self._address(linear.bias)

    def _address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        self._held.append(tensor)
        return tensor.data_ptr()
