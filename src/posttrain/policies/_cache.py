"""Keys and values of sequences in progress, preallocated and written in place."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

GRANULE = 64
"""Capacity is a multiple of this many tokens."""
FIRST_CAPACITY = 256
"""Tokens per slot that are allocated at first; doubled when a sequence outgrows it."""


class KeyValueCache:
    """A slot for each of a number of sequences; see `posttrain.policies.Cache`."""

    keys: list[Tensor]
    """By layer: [slots, key-value heads, capacity, head width]."""
    values: list[Tensor]

    def __init__(
        self,
        *,
        layers: int,
        slots: int,
        heads: int,
        width: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.lengths = [0] * slots
        self.capacity = 0
        empty = torch.zeros(slots, heads, 0, width, dtype=dtype, device=device)
        self.keys = [empty] * layers
        self.values = [empty] * layers
        self.reserve(max(1, min(capacity, FIRST_CAPACITY)))

    def release(self, slot: int) -> None:
        """Forget what a slot holds, so that another sequence can have it."""
        self.lengths[slot] = 0

    @torch.no_grad()
    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Give every target slot what the source slot holds: a prompt computed once for a whole group."""
        others = [target for target in targets if target != source]
        if not others:
            return
        length = self.lengths[source]
        for stored in (*self.keys, *self.values):
            stored[others, :, :length] = stored[source, :, :length]
        for target in others:
            self.lengths[target] = length

    def reserve(self, tokens: int) -> None:
        """Make room for sequences of this many tokens; what is stored stays."""
        if tokens <= self.capacity:
            return
        capacity = -(-max(tokens, 2 * self.capacity) // GRANULE) * GRANULE
        grown = (0, 0, 0, capacity - self.capacity)
        # Zeros, not garbage: a masked position still takes part, as 0 times its value. Never inference tensors, which
        # could not be written in place outside of inference mode.
        with torch.inference_mode(False), torch.no_grad():
            self.keys = [F.pad(stored, grown) for stored in self.keys]
            self.values = [F.pad(stored, grown) for stored in self.values]
        self.capacity = capacity

    def places(self, slot_T: Tensor, position_T: Tensor) -> Tensor:
        """Flat indices of the heads of tokens in a layer's keys, token by token; room must be reserved before."""
        heads = self.keys[0].shape[1]
        head_TK = slot_T[:, None] * heads + torch.arange(heads)
        return (head_TK * self.capacity + position_T[:, None]).flatten()

    def write(self, layer: int, places: Tensor, key: Tensor, value: Tensor) -> None:
        """Store keys and values [R, heads, width] of new tokens; rows beyond the tokens are padding."""
        tokens = len(places) // key.shape[1]
        for stored, new in ((self.keys[layer], key), (self.values[layer], value)):
            stored.view(-1, stored.shape[-1]).index_copy_(0, places, new[:tokens].flatten(0, 1))
