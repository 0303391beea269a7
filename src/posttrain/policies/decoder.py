"""The native decoder: Llama-, Qwen2- and Qwen3-shaped transformers, on packed tokens.

Every linear layer works on a flat list of tokens; only attention uses where a sequence begins
(`posttrain.policies._attention`). What it is made of is in `posttrain.policies._modules`.

R rows (L tokens, and padding up to a multiple of 16), D width, d width of a head.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from posttrain import kernels
from posttrain.errors import UserError
from posttrain.kernels import Drawing, layers
from posttrain.policies import Cache, Packed
from posttrain.policies._attention import (
    Attends,
    Watching,
    attend_cached,
    attend_packed,
    attends_after,
    first_rows,
    pad_rows,
    token_positions,
)
from posttrain.policies._cache import LARGE, KeyValueCache
from posttrain.policies._decoding import Decoding, decoding_of, packed_bytes_of
from posttrain.policies._memory import room_beside, state_bytes
from posttrain.policies._modules import DecoderModules, Layer
from posttrain.policies._shape import kept_numbers
from posttrain.policies.vocabulary import embedded, logits

LEAST_CACHED: Final = 3 << 27
"""Bytes that keys and values of sequences in progress may take beside any model."""
MUCH: Final = 1.5
"""A forward pass that keeps this many times what there is room for computes its layers again in the backward pass."""


class Decoder(DecoderModules):
    """A decoder of a given shape. Its parameters are uninitialised until a state dict is loaded."""

    @property
    def shares_prompts(self) -> bool:
        """Where attention is by the kernels for packed sequences, and states are not shifted after it."""
        return self.steers is None and attends_after(self.model.embed_tokens.weight)

    @property
    def prefix_stamp(self) -> object | None:
        """Where these weights are and how often they were written, on a CPU with kernels for attention; None with
        hooks, and in bfloat16 by a matrix unit, whose sums depend on how many rows there are.
        """
        weight = self.model.embed_tokens.weight
        if self.steers is not None or not kernels.usable(weight):
            return None
        if weight.dtype != torch.float32 and not self._by_own_kernels:
            return None
        if any(module._forward_hooks or module._forward_pre_hooks for module in self.modules()):
            return None
        return tuple((parameter.data_ptr(), parameter._version) for parameter in self.parameters())

    @property
    def decodes_alike(self) -> bool:
        """In float32 with kernels of our own for the matrices too: their sums have one order in all of them."""
        return self.model.embed_tokens.weight.dtype == torch.float32 and self._by_own_kernels

    @property
    def _by_own_kernels(self) -> bool:
        first: Layer = self.model.layers[0]  # type: ignore[assignment]
        return layers.covered(self.model.embed_tokens.weight, first.linears, first.norms)

    @property
    def kept_bytes(self) -> int:
        """Of the layers, by the kernels that take them a few rows at a time: two sums, queries, keys, values, what is
        attended to, the two halves of the MLP, and queries and keys before their norms. Other ways keep about twice
        that.
        """
        shape = self.shape
        numbers = kept_numbers(
            width=shape.width,
            heads=shape.heads * shape.head_dim,
            kv_heads=shape.kv_heads * shape.head_dim,
            mlp_width=shape.mlp_width,
            normed=shape.qk_norm,
        )
        return shape.layers * numbers * self.model.embed_tokens.weight.element_size()

    @property
    def decoding_bytes(self) -> int:
        """On a CPU, of the matrices in the layout of the kernel."""
        return packed_bytes_of(self)

    @property
    def cached_tokens(self) -> int | None:
        """As many as take half of the memory of the weights, of a model that is large on a CPU."""
        weights = sum(parameter.nbytes for parameter in self.parameters())
        weight = self.model.embed_tokens.weight
        if weights < LARGE or weight.device.type != "cpu":
            return None
        token = 2 * self.shape.layers * self.shape.kv_heads * self.shape.head_dim * weight.element_size()
        return max(weights // 2, LEAST_CACHED) // token

    def hidden(self, packed: Packed) -> Tensor:
        """[L, D] final hidden states; differentiable."""
        if packed.after is not None and not self.shares_prompts:
            alone, places_L = packed.alone()
            return self.hidden(alone).index_select(0, places_L)
        lengths, past = packed.lengths, packed.past
        positions = token_positions(past, lengths)
        x_RD = self._embed(packed)
        attend = attend_packed(packed, x_RD)
        longest = max(p + n for p, n in zip(past, lengths, strict=True))
        x_RD, delta_RD = self._layers(x_RD, positions, longest, attend)
        _, hidden = kernels.add_norm(x_RD, delta_RD, self.model.norm)
        hidden_LD = first_rows(hidden, len(packed.token_ids_L))
        return hidden_LD if self.steers is None else self.steers.packed(hidden_LD, packed)

    @property
    def shows_attention(self) -> bool:
        """It does."""
        return True

    @torch.no_grad()
    def attention(self, packed: Packed, share: float) -> Tensor:
        """[L] how much the last token of the only sequence attends to each."""
        length = len(packed.token_ids_L)
        x_RD = self._embed(packed)
        watched = Watching(attend_packed(packed, x_RD), length, max(1, int(share * self.shape.layers)))
        self._layers(x_RD, token_positions((0,), (length,)), length, watched)
        return torch.stack(watched.found).mean(0)

    @property
    def summed_in_parts(self) -> tuple[nn.Parameter, ...]:
        """The embedding, whose rows go straight to the sum if they are many, and the last layer with its adapters."""
        return (self.model.embed_tokens.weight, *(() if self.shape.tied else self.lm_head.parameters()))

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """[T, V] next-token logits of hidden states."""
        rows = pad_rows(hidden_TD)
        head: Tensor = self.model.embed_tokens.weight if self.shape.tied else self.lm_head.weight
        plain = self.shape.tied or type(self.lm_head) is nn.Linear
        return first_rows(logits(rows, head) if plain else self.lm_head(rows), len(hidden_TD))

    def next_logits(self, cache: Cache, hidden_BD: Tensor) -> Tensor:
        """[B, V]; by the kernel that `write` has them from, if it does."""
        decoding = decoding_of(self, cache) if isinstance(cache, KeyValueCache) else None
        if not isinstance(decoding, Decoding) or decoding.weights.head is None:
            return self.logits(hidden_BD)
        return kernels.product(hidden_BD, decoding.weights.head, self.vocabulary_size)

    def new_cache(self, slots: int, capacity: int) -> KeyValueCache:
        """An empty cache; it takes memory as sequences do, and grows beyond `capacity` if it must."""
        weight = self.model.embed_tokens.weight
        return KeyValueCache(
            layers=self.shape.layers,
            slots=slots,
            heads=self.shape.kv_heads,
            width=self.shape.head_dim,
            capacity=capacity,
            dtype=weight.dtype,
            device=weight.device,
        )

    @torch.no_grad()
    def extend(self, cache: Cache, slots: Sequence[int], packed: Packed) -> Tensor:
        """[B, D] hidden state of the last token of each sequence, after appending sequence i to slot ``slots[i]``."""
        assert isinstance(cache, KeyValueCache), "the cache is this body's own"
        slot_B = np.array(slots)
        past_B = cache.lengths[slot_B]
        assert len(set(slots)) == len(slots) == len(packed.starts) - 1, "one sequence a slot"
        one_each = len(packed.token_ids_L) == len(slot_B) and past_B.min() > 0 and packed.vectors_LD is None
        if one_each and self.steers is None and (decoding := decoding_of(self, cache)) is not None:
            assert past_B.max() < self.context, "callers check prompts against body.context"
            cache.reserve(slot_B, past_B + 1)
            hidden_BD = decoding(self, cache, slot_B, packed.token_ids_L)
            cache.lengths[slot_B] += 1
            return hidden_BD
        lengths, past = packed.lengths, past_B.tolist()
        assert min(lengths) > 0, "one token at least"
        positions = token_positions(past, lengths)
        x_RD = self._embed(packed)
        attend = attend_cached(cache, slots, lengths, x_RD)
        longest = max(p + n for p, n in zip(past, lengths, strict=True))
        x_RD, delta_RD = self._layers(x_RD, positions, longest, attend)
        cache.lengths[slot_B] += lengths
        if self.steers is not None:
            _, hidden = kernels.add_norm(x_RD, delta_RD, self.model.norm)
            return self.steers.extended(cache.notes, slots, packed, first_rows(hidden, len(packed.token_ids_L)))
        last_B = torch.tensor(packed.starts[1:], device=x_RD.device) - 1
        _, hidden = kernels.add_norm(x_RD[last_B], delta_RD[last_B], self.model.norm)
        return hidden

    @torch.no_grad()
    def write(
        self, cache: Cache, slots: Sequence[int], token_ids_B: Tensor, drawing: Drawing, steps: int
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """In one call of a kernel on a CPU, for vocabularies that are not huge; by captured steps on a GPU."""
        assert isinstance(cache, KeyValueCache), "the cache is this body's own"
        decoding = None if self.steers is not None else decoding_of(self, cache)
        if decoding is None or not decoding.draws:
            return None
        slot_B = np.array(slots)
        past_B = cache.lengths[slot_B]
        assert past_B.min() > 0 and past_B.max() < self.context, "after a prompt, within body.context"
        steps = min(steps, self.context - int(past_B.max()))
        cache.reserve(slot_B, past_B + steps)
        drawn = decoding.draw(self, cache, slot_B, token_ids_B, drawing, steps)
        cache.lengths[slot_B] += steps
        return drawn

    def _embed(self, packed: Packed) -> Tensor:
        """[R, D] what the layers see of tokens and their vectors."""
        weight = self.model.embed_tokens.weight
        x_RD = pad_rows(embedded(packed.token_ids_L.to(weight.device), weight))
        if packed.guessed_L is not None:
            guessed_RD = pad_rows(embedded(packed.guessed_L.to(weight.device), weight))
            x_RD = (1.0 - packed.foresight) * x_RD + packed.foresight * guessed_RD
        if packed.vectors_LD is None or (self.steers is not None and packed.vectors_LD.shape[1] == self.vector_width):
            return x_RD
        if self.vector_width != packed.vectors_LD.shape[1]:
            raise UserError(
                f"this model takes {f'vectors of {self.vector_width} numbers' if self.vector_width else 'text only'}, "
                f"but tokens come with vectors of {packed.vectors_LD.shape[1]} numbers: a model for images of another "
                "size, or for none"
            )
        vectors_RV = pad_rows(packed.vectors_LD.to(x_RD.dtype))
        mixed: Tensor = x_RD + self.vision(vectors_RV) if self.latents is None else self.latents(x_RD, vectors_RV)
        return mixed

    def _layers(self, x_RD: Tensor, positions: Tensor, longest: int, attend: Attends) -> tuple[Tensor, Tensor]:
        """[R, D] the residual stream after all layers, and what is still to be added to it."""
        assert longest <= self.context, "callers check prompts against body.context"
        rotation = self._rotation(positions.to(x_RD.device), longest, x_RD.device)
        delta_RD = None
        too_much = x_RD.device.type == "cpu" and self._keeps_too_much(len(x_RD))
        twice = torch.is_grad_enabled() and (self.recomputes_layers or too_much)
        for layer in self.model.layers:
            x_RD, delta_RD = layer(x_RD, delta_RD, rotation, attend, twice=twice)
        assert delta_RD is not None, "a model has layers"
        return x_RD, delta_RD

    def _keeps_too_much(self, rows: int) -> bool:
        """Whether a forward pass of that many rows keeps far more than there is room for: one long sequence, mostly,
        since micro-batches are cut to fit.
        """
        return rows * self.kept_bytes > MUCH * room_beside(state_bytes(self))

    def _rotation(self, positions: Tensor, longest: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine, float32 [R, d / 2], of the rows' positions; padding rows take position 0."""
        cosine, sine = self.rotations(longest, device)
        positions = pad_rows(positions)
        return cosine[positions], sine[positions]
