"""Keys and values of sequences in progress, in pages of a few tokens each (Kwon et al. 2023, PagedAttention,
arXiv:2309.06180, section 4): memory grows with the tokens that live, and a prompt's full pages are shared by all
sequences that begin with it.

Only full pages are ever shared, and tokens are only written after the last one, so that what is shared is never
written. A freed page is the next to be used again. Pages of sequences that have ended may be kept
(`posttrain.policies._kept_prefixes`): those that begin with the same tokens share them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from posttrain import kernels
from posttrain.kernels import PAGE
from posttrain.kernels.panels import free_panels
from posttrain.policies._kept_prefixes import KeptPrefixes
from posttrain.types import Array, IntArray

FIRST_PAGES = 64
GROWTH = 1.5
"""By how much the memory grows when no page is free."""
FIRST_BYTES = 1 << 30
"""On a CPU, addresses reserved at first; the system allocates memory only where it is written."""
FIRST_SHARE = 1 / 8
"""On a GPU, the part of its free memory that is taken at first: growing copies everything, and leaves gaps behind."""


KEPT_BYTES: Final = 1 << 28
"""On a CPU, memory that closed caches leave to the next ones of their shapes, all together: what comes fresh from the
system comes page by page and zeroed, a tenth of the time of sampling."""


LARGE: Final = 1 << 28
"""Bytes of weights from which memory that is kept to be faster goes back to the system between sampling and learning:
beside that much arithmetic, to fetch it again takes no time."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The memory of a closed cache."""

    keys: list[Tensor]
    values: list[Tensor]
    size: int
    """Bytes of it that were written."""


_kept: dict[tuple[object, ...], Kept] = {}  # by shape, the latest last


class KeyValueCache:
    """A slot for each of a number of sequences; see `posttrain.policies.Cache`."""

    keys: list[Tensor]
    """By layer: [pages, page, key heads, head width]; [pages, key heads, head width, page] for the decoding kernel."""
    values: list[Tensor]
    """By layer: [pages, page, key heads, head width]."""
    lengths: NDArray[np.int64]
    decoding: object | None = None
    """The `Decoding` of `posttrain.policies._decoding`, which goes when the cache does."""
    table_SP: NDArray[np.int32]
    """Pages of each slot, in order; of the first ``ceil(length / page)`` only."""

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
        self.lengths = np.zeros(slots, np.int64)
        self.notes: dict[int, object] = {}
        """What a model keeps of a slot beside keys and values; never changed in place."""
        self.table_SP = np.zeros((slots, 4), np.int32)
        self._held = np.zeros(slots, np.int64)
        """Pages of each slot."""
        self._users = np.zeros(0, np.int32)
        """Slots that hold each page."""
        self._free: list[int] = []
        self._most = 0
        """Pages that were held at a time, at most: those that have memory."""
        self.kept = KeptPrefixes(0)
        most = slots * -(-capacity // PAGE)
        self.page_bytes = page_bytes = 2 * layers * PAGE * heads * width * dtype.itemsize
        self._first = FIRST_PAGES
        if device.type == "cpu":
            self._first = min(most, max(FIRST_PAGES, FIRST_BYTES // page_bytes))
        elif device.type == "cuda":
            self._first = min(most, max(FIRST_PAGES, int(FIRST_SHARE * _free_bytes(device)) // page_bytes))
        empty = torch.zeros(0, PAGE, heads, width, dtype=dtype, device=device)
        self.for_kernel = kernels.usable(empty)
        self._shape = layers, heads, width, dtype, device, self.for_kernel
        self.keys = [empty.new_zeros(0, heads, width, PAGE) if self.for_kernel else empty] * layers
        self.values = [empty] * layers

    @property
    def pages(self) -> int:
        """Number of pages in use."""
        return len(self._users) - len(self._free)

    def close(self) -> None:
        """Free the cache after its last use; all of its values were finite."""
        size = self._most * self.page_bytes
        if 0 < size <= KEPT_BYTES and self.keys[0].device.type == "cpu":
            _kept.pop(self._shape, None)
            _kept[self._shape] = Kept(self.keys, self.values, size)
            while sum(kept.size for kept in _kept.values()) > KEPT_BYTES:
                del _kept[next(iter(_kept))]
        self.keys, self.values, self.decoding = [], [], None

    def release(self, slot: int) -> None:
        """Free a slot for another sequence."""
        self._give_up(self.table_SP[slot, : self._held[slot]].tolist())
        self._held[slot] = self.lengths[slot] = 0
        self.notes.pop(slot, None)

    def keep_prefixes(self, most_bytes: int) -> None:
        """Let what is kept of sequences that have ended take this much at most."""
        self.kept.most = most_bytes // self.page_bytes

    def keep(self, slot: int, token_ids: IntArray) -> None:
        """Keep the first tokens of a slot, which are these."""
        assert len(token_ids) <= self.lengths[slot], "it holds them"
        pages = self.table_SP[slot, : -(-len(token_ids) // PAGE)].tolist()
        begun, ended = self.kept.keep(token_ids, pages)
        self._users[begun] += 1
        self._give_up(ended)

    def forget(self) -> None:
        """Keep nothing of sequences that have ended."""
        self._give_up(self.kept.clear())

    @torch.no_grad()
    def begin(self, sequences: Sequence[tuple[int, IntArray, int]]) -> list[int]:
        """Give free slots the longest prefixes that are kept of their sequences, of `most` tokens at most. Returns
        the number of tokens of each; 0 where there is nothing.
        """
        taken: list[int] = []
        copies: list[tuple[int, int]] = []  # pages that are used in part, and slots that go on with them
        for slot, token_ids, most in sequences:
            pages, length = self.kept.find(token_ids, most)
            taken.append(length)
            if not length:
                continue
            self.release(slot)
            full = length // PAGE
            self._make_columns(len(pages))
            self.table_SP[slot, :full] = pages[:full]
            self._users[pages] += 1
            self._held[slot], self.lengths[slot] = full, length
            if full < len(pages):
                copies.append((pages[full], slot))
        if copies:
            slots = [slot for _, slot in copies]
            self.reserve(slots, self.lengths[slots])
            given = torch.tensor([page for page, _ in copies]).to(self.keys[0].device)
            own = [int(self.table_SP[slot, self.lengths[slot] // PAGE]) for slot in slots]
            to = torch.tensor(own).to(given.device)
            for stored in (*self.keys, *self.values):
                stored[to] = stored[given]
            self._give_up([page for page, _ in copies])
        return taken

    @torch.no_grad()
    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Give every target slot what the source slot holds: a prompt computed once for a whole group.

        Full pages are shared; the last one, which each goes on to fill, is copied.
        """
        others = [target for target in targets if target != source]
        length = int(self.lengths[source])
        full, rest = divmod(length, PAGE)
        shared = self.table_SP[source, :full].copy()
        for target in others:
            self.release(target)
            self.table_SP[target, :full] = shared
            self._held[target], self.lengths[target] = full, length
            if source in self.notes:
                self.notes[target] = self.notes[source]
        self._users[shared] += len(others)
        if rest and others:
            self.reserve(others, [length] * len(others))
            last = torch.from_numpy(self.table_SP[others, full].astype(np.int64)).to(self.keys[0].device)
            for stored in (*self.keys, *self.values):
                stored[last] = stored[int(self.table_SP[source, full])].clone()

    def take_out(self, slot: int, tokens: int) -> list[Array] | None:
        """Two arrays, keys and values: [layers, heads, tokens, width]."""
        if slot in self.notes:
            return None
        pages = torch.from_numpy(self.table([slot], tokens).astype(np.int64)).to(self.values[0].device)
        found = [self.read(layer, pages) for layer in range(len(self.values))]
        return [as_array(torch.stack([pair[i][0, :, :tokens] for pair in found])) for i in range(2)]

    @torch.no_grad()
    def put_in(self, slot: int, stored: Sequence[Array]) -> None:
        """Into pages of its own."""
        keys, values = (of_array(array, self.values[0]) for array in stored)
        tokens = keys.shape[2]
        self.release(slot)
        self.reserve([slot], [tokens])
        places = self.places(np.full(tokens, slot), np.arange(tokens))
        for layer in range(len(self.values)):
            self.write(layer, places, keys[layer].transpose(0, 1), values[layer].transpose(0, 1))
        self.lengths[slot] = tokens

    def reserve(self, slots: ArrayLike, tokens: ArrayLike) -> None:
        """Make room for this many tokens in each slot; what is stored stays."""
        slot_B, wanted_B = np.asarray(slots), -(-np.asarray(tokens) // PAGE)
        missing_B = wanted_B - self._held[slot_B]
        if missing_B.max() <= 0:
            return
        self._make_columns(int(wanted_B.max()))
        missing = int(missing_B.clip(min=0).sum())
        if missing > len(self._free):
            self._grow(missing - len(self._free))
        for i in np.flatnonzero(missing_B > 0).tolist():
            slot, held, pages = slot_B[i], self._held[slot_B[i]], wanted_B[i]
            fresh = [self._free.pop() for _ in range(pages - held)]
            self._users[fresh] = 1
            self.table_SP[slot, held:pages] = fresh
            self._held[slot] = pages
        self._most = max(self._most, self.pages)

    def _make_columns(self, most: int) -> None:
        """Have room for that many pages of a slot in the table."""
        columns = self.table_SP.shape[1]
        if most > columns:
            self.table_SP = np.pad(self.table_SP, ((0, 0), (0, max(most, 2 * columns) - columns)))

    def _give_up(self, pages: Sequence[int]) -> None:
        """One holder less of each."""
        for page in pages:
            self._users[page] -= 1
            if self._users[page] == 0:
                self._free.append(page)

    def table(self, slots: ArrayLike, tokens: int) -> NDArray[np.int32]:
        """[B, P] pages of the first tokens of some slots; where a slot holds less, any page."""
        wanted = -(-tokens // PAGE)
        pages = self.table_SP[np.asarray(slots), :wanted]
        if pages.shape[1] < wanted:
            pages = np.pad(pages, ((0, 0), (0, wanted - pages.shape[1])))
        return np.ascontiguousarray(pages)

    def places(self, slots: NDArray[np.int64], positions: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """[T] each: the pages of tokens, and where in them; room must be reserved before."""
        page_T = self.table_SP[slots, positions // PAGE].astype(np.int64)
        device = self.keys[0].device
        return torch.from_numpy(page_T).to(device), torch.from_numpy(positions % PAGE).to(device)

    def write(self, layer: int, places: tuple[Tensor, Tensor], key: Tensor, value: Tensor) -> None:
        """Store keys and values [R, heads, width] of new tokens; rows beyond the tokens are padding."""
        page_T, place_T = places
        self.values[layer][page_T, place_T] = value[: len(page_T)]
        if self.for_kernel:
            self.keys[layer][page_T, :, :, place_T] = key[: len(page_T)]
        else:
            self.keys[layer][page_T, place_T] = key[: len(page_T)]

    def read(self, layer: int, page_BP: Tensor) -> tuple[Tensor, Tensor]:
        """[B, heads, P * page, width] keys and values of some pages."""
        key, value = self.keys[layer][page_BP], self.values[layer][page_BP]
        key = key.permute(0, 1, 4, 2, 3) if self.for_kernel else key
        return key.flatten(1, 2).transpose(1, 2), value.flatten(1, 2).transpose(1, 2)

    def _grow(self, pages: int) -> None:
        """Have at least `pages` pages more."""
        had = len(self._users)
        if not had and self._take_over(pages):
            return
        more = max(pages, int(had * (GROWTH - 1))) if had else max(pages, self._first)
        # Zeros, not garbage: a masked position still takes part, as 0 times its value. Never inference tensors, which
        # could not be written in place outside of inference mode.
        with torch.inference_mode(False), torch.no_grad():
            for stored in (self.keys, self.values):
                for layer, tensor in enumerate(stored):
                    stored[layer] = _zeros(had + more, tensor)
                    stored[layer][:had] = tensor
        self._users = np.pad(self._users, (0, more))
        self._free = [*range(had + more - 1, had - 1, -1), *self._free]

    def _take_over(self, pages: int) -> bool:
        """Have the memory of a cache that was closed, if it is of this shape and has enough pages. What lies in it is
        finite, so that masked positions are still taken as 0 times something.
        """
        kept = _kept.pop(self._shape, None)
        if kept is None or len(kept.values[0]) < pages:
            return False
        self.keys, self.values, self._most = kept.keys, kept.values, kept.size // self.page_bytes
        self._users = np.zeros(len(self.values[0]), np.int32)
        self._free = [*range(len(self._users) - 1, -1, -1)]
        return True


def _free_bytes(device: torch.device) -> int:
    """Memory of a GPU that this process can take, what torch keeps for itself included."""
    if not torch.cuda.is_available():
        return 0
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _zeros(pages: int, like: Tensor) -> Tensor:
    """Pages of zeros; on a CPU those of the system, which take memory only when they are written. The C library may
    give memory that was used before, and write the zeros.
    """
    shape = (pages, *like.shape[1:])
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not size:
        return like.new_zeros(shape)
    return torch.frombuffer(mmap(-1, size), dtype=torch.uint8).view(like.dtype).view(shape)


def as_array(tensor: Tensor) -> Array:
    """A copy of a tensor in numpy; bfloat16, which numpy has not, as the int16 of its bits."""
    whole = tensor.detach().cpu().contiguous().clone()
    found: Array = (whole.view(torch.int16) if whole.dtype == torch.bfloat16 else whole).numpy()
    return found


def of_array(array: Array, like: Tensor) -> Tensor:
    """The tensor of `as_array`, of the type and on the device of another one."""
    tensor = torch.from_numpy(array)
    return (tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor).to(like)


def free_kept() -> None:
    """Free the memory that closed caches left to the next ones, and that of panels. In the thread that samples."""
    _kept.clear()
    free_panels()
