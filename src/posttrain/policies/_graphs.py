"""Decoding with the native decoder on a GPU: a step, one new token of each sequence, is captured once and replayed.

A step of a few tokens is hundreds of small kernels, and starting them one by one takes longer than they run. A CUDA
graph starts all of them at once, on the memory that it was captured with. So what changes from step to step lies in one
tensor that stays where it is, filled by one copy: the tokens, where they stand, their pages, and the addresses of the
pages' memory, which may move. The rows of a step are rounded up to one of `row_counts`, and the pages of the longest
sequence to a power of two: there are few graphs, and each is captured when it is first needed.

Graphs outlive caches. They read the weights where they lie: an update in place changes nothing, and weights that lie
elsewhere are captured anew.

L layers, B rows, P pages of a row, D width.
"""

import weakref
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from posttrain import kernels
from posttrain.errors import RunFailed
from posttrain.kernels import PAGE, choosing, paged
from posttrain.policies._cache import KeyValueCache
from posttrain.policies._modules import DecoderModules, Layer
from posttrain.types import IntArray

ROWS: Final = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Rows of a graph; above the last, multiples of `MORE_ROWS`."""
MORE_ROWS: Final = 128
LEAST_PAGES: Final = paged.SPLIT // PAGE
"""Pages of a row in the smallest graph: what one program attends to."""
WARM_UP: Final = 3
"""Runs before a capture: kernels are compiled, and libraries choose their own. Running a step again changes nothing."""

Step = Callable[[], None]


class Capture(Protocol):
    """Makes a step repeatable: returns a function that runs it again, on the same memory."""

    def __call__(self, step: Step) -> Step:
        """Capture a step; not to be counted on to run it."""
        ...


class CudaGraphs:
    """Graphs that share one memory pool: they never run concurrently, and a step's result is stored outside of it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, step: Step) -> Step:
        """Capture it, after a few runs on a stream of its own: https://docs.pytorch.org/docs/stable/notes/cuda.html."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP):
                step()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            step()
        return graph.replay


def no_capture(step: Step) -> Step:
    """Run the step itself every time: on the same memory as a graph, without one."""
    return step


def row_count(rows: int) -> int:
    """Rows of the graph that a number of sequences takes."""
    return next((n for n in ROWS if n >= rows), -(-rows // MORE_ROWS) * MORE_ROWS)


def page_count(tokens: int) -> int:
    """Pages of a row in the graph for sequences of up to that many tokens, the new one included."""
    pages = -(-tokens // PAGE)
    return max(LEAST_PAGES, 1 << (pages - 1).bit_length())


class Inputs:
    """Inputs of a step, in one tensor on the host and one on the device, sent in one copy.

    Both hold, one after another, int64 addresses [L, 2], and int32 token ids [B], positions [B] and pages [B, P].
    """

    def __init__(self, layers: int, rows: int, pages: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda" and torch.cuda.is_available()
        room = -(-rows // 4) * 4  # so that all of it begins at multiples of 16 bytes
        size = 4 * layers + 2 * room + rows * pages
        self._sent: torch.cuda.Event | None = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=on_gpu)
        self._device = torch.zeros(size, dtype=torch.int32, device=device)

        def parts(buffer: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            address, ids, position, table = torch.split(buffer, [4 * layers, room, room, rows * pages])
            return address.view(torch.int64).view(layers, 2), ids[:rows], position[:rows], table.view(rows, pages)

        self._parts = tuple(part.numpy() for part in parts(self._host))
        address_L2, self.token_ids_B, position_B, page_BP = parts(self._device)
        self.places = paged.Places(position_B, page_BP, address_L2)

    def fill(self, cache: KeyValueCache, slot_B: IntArray, token_ids_B: Tensor) -> None:
        """Send the inputs of a step of these slots. Ids are of the host or the device; rows beyond are padding."""
        count = len(slot_B)
        ids: NDArray[np.int32]
        address_L2, ids, position_B, page_BP = self._parts
        if self._sent is not None:
            self._sent.synchronize()  # the last copy from here: complete, unless its result was never read
        pages = zip(cache.keys, cache.values, strict=True)
        address_L2[:] = [[key.data_ptr(), value.data_ptr()] for key, value in pages]
        position_B[:count] = cache.lengths[slot_B]
        position_B[count:] = -1
        page_BP[:count] = cache.table(slot_B, page_BP.shape[1] * PAGE)
        on_host = token_ids_B.device.type == "cpu"
        ids[:count] = token_ids_B.numpy() if on_host else 0
        self._device.copy_(self._host, non_blocking=True)
        if self._sent is not None:
            self._sent.record()
        if not on_host:
            self.token_ids_B[:count].copy_(token_ids_B)

    def advance(self, token_ids_B: Tensor) -> None:
        """The next step of the same slots, without the host: ids of the device, after the tokens of the last step."""
        count = len(token_ids_B)
        self.token_ids_B[:count].copy_(token_ids_B)
        self.places.position_B[:count] += 1


class Graph:
    """A captured step of a number of rows and pages: its inputs, its result, and how to run it."""

    def __init__(self, body: DecoderModules, rows: int, pages: int) -> None:
        weight = body.model.embed_tokens.weight
        self.inputs = Inputs(len(body.model.layers), rows, pages, weight.device)
        self.hidden_BD = torch.zeros(rows, body.width, dtype=weight.dtype, device=weight.device)
        self.replay: Step | None = None
        self._body = weakref.ref(body)
        self._rotation = body.rotations(min(pages * PAGE, body.context), weight.device)

    def step(self) -> None:
        """The whole step on the device, without synchronization."""
        body = self._body()
        assert body is not None, "a body's graphs go with it"
        x_BD = F.embedding(self.inputs.token_ids_B, body.model.embed_tokens.weight)
        delta_BD = None
        for layer in body.model.layers:
            x_BD, delta_BD = self._layer(layer, x_BD, delta_BD)  # type: ignore[arg-type]
        assert delta_BD is not None, "a model has layers"
        self.hidden_BD.copy_(kernels.add_norm(x_BD, delta_BD, body.model.norm)[1])

    def _layer(self, layer: Layer, x_BD: Tensor, delta_BD: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `posttrain.policies._modules.Layer` does it, with the attention that reads and writes pages."""
        if delta_BD is None:
            normed_BD = kernels.norm(x_BD, layer.input_layernorm)
        else:
            x_BD, normed_BD = kernels.add_norm(x_BD, delta_BD, layer.input_layernorm)
        by = layer.self_attn
        query, key, value = (
            project(normed_BD).unflatten(1, (-1, by.head_dim)) for project in (by.q_proj, by.k_proj, by.v_proj)
        )
        rotary = paged.Rotary((by.q_norm, by.k_norm), self._rotation)
        attended = paged.decode_attention(query, key, value, rotary, self.inputs.places, by.layer)
        x_BD, normed_BD = kernels.add_norm(x_BD, by.o_proj(attended), layer.post_attention_layernorm)
        return x_BD, layer.mlp(normed_BD)


class CapturedDecoding:
    """The graphs of a body."""

    def __init__(self, body: DecoderModules, new_capture: Callable[[], Capture]) -> None:
        self.device = body.model.embed_tokens.weight.device
        self.captures = 0
        """How many there have been."""
        self._new_capture = new_capture
        self._capture = new_capture()
        self._graphs: dict[tuple[int, int], Graph] = {}
        self._cache: weakref.ref[KeyValueCache] | None = None
        self._parameters: list[Tensor] = []
        self._addresses: list[int] = []

    def __call__(self, body: DecoderModules, cache: KeyValueCache, slot_B: IntArray, token_ids_B: Tensor) -> Tensor:
        """[B, D] last hidden states after appending a token to each slot, in which there is room."""
        graph = self._graph(body, cache, slot_B, 1)
        graph.inputs.fill(cache, slot_B, token_ids_B)
        return self._hidden(graph, cache, len(slot_B)).clone()

    @property
    def draws(self) -> bool:
        """Whether `draw` can choose tokens on the device."""
        return choosing.usable(self.device)

    def draw(
        self,
        body: DecoderModules,
        cache: KeyValueCache,
        slot_B: IntArray,
        token_ids_B: Tensor,
        drawing: kernels.Drawing,
        steps: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Append a token and draw the next one, `steps` times: [B, N] tokens, log-probabilities and entropies. The host
        waits for none of them.
        """
        graph, count = self._graph(body, cache, slot_B, steps), len(slot_B)
        uniform_NB = _draws(drawing, steps).to(self.device, non_blocking=True)
        temperature_B = drawing.temperature_B.to(self.device, non_blocking=True)
        graph.inputs.fill(cache, slot_B, token_ids_B)
        drawn: list[tuple[Tensor, Tensor, Tensor]] = []
        for uniform_B in uniform_NB:
            if drawn:
                graph.inputs.advance(drawn[-1][0])
            logits_BV = body.logits(self._hidden(graph, cache, count))
            drawn.append(choosing.choose(logits_BV, temperature_B, uniform_B))
        token_BN, logp_BN, entropy_BN = (torch.stack(kind, 1) for kind in zip(*drawn, strict=True))
        return token_BN, logp_BN, entropy_BN

    def _graph(self, body: DecoderModules, cache: KeyValueCache, slot_B: IntArray, steps: int) -> Graph:
        """The graph for these slots, with room for that many tokens more in each."""
        self._follow(body, cache)
        size = row_count(len(slot_B)), page_count(int(cache.lengths[slot_B].max()) + steps)
        graph = self._graphs.get(size)
        if graph is None:
            graph = self._graphs[size] = Graph(body, *size)
        return graph

    def _hidden(self, graph: Graph, cache: KeyValueCache, count: int) -> Tensor:
        """[B, D] of a step, in the memory of the graph: the next step overwrites it."""
        places = graph.inputs.places
        places.keys, places.values = cache.keys, cache.values
        try:
            if graph.replay is None:
                graph.replay = self._captured(graph)
            graph.replay()
        finally:
            places.keys, places.values = (), ()  # nothing here keeps the memory of a cache that is gone
        return graph.hidden_BD[:count]

    def _captured(self, graph: Graph) -> Step:
        self.captures += 1
        try:
            return self._capture(graph.step)
        except RuntimeError as error:
            self._graphs.clear()
            raise RunFailed(
                f"a decoding step could not be captured in a CUDA graph: {error}. {paged.GRAPHS}=off samples without "
                "graphs, slower."
            ) from error

    def _follow(self, body: DecoderModules, cache: KeyValueCache) -> None:
        """Forget all graphs where the weights lie elsewhere than when they were captured."""
        if self._cache is None or self._cache() is not cache:
            # Modules may have been put in place of others since the last cache: an adapter, for one.
            self._cache, self._parameters = weakref.ref(cache), list(body.parameters())
        addresses = [parameter.data_ptr() for parameter in self._parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._graphs.clear()
            self._capture = self._new_capture()  # a pool whose graphs are all gone is not used again


def _draws(drawing: kernels.Drawing, steps: int) -> Tensor:
    """[N, B] the draws of `steps` tokens of each sequence."""
    counter_NB = drawing.counter_B.view(torch.int64) + torch.arange(steps)[:, None]
    key_NB = drawing.key_B.view(torch.int64).expand_as(counter_NB)
    flat = (given.flatten().view(torch.uint64) for given in (key_NB, counter_NB))
    return kernels.uniform(*flat).view(steps, -1)


_OF_BODY: "weakref.WeakKeyDictionary[DecoderModules, CapturedDecoding]" = weakref.WeakKeyDictionary()


def captured_decoding_of(body: DecoderModules) -> CapturedDecoding | None:
    """The graphs of a body, also those that a test set; None if its device has no graphs."""
    weight = body.model.embed_tokens.weight
    found = _OF_BODY.get(body)
    if found is not None and found.device == weight.device:
        return found
    if not paged.usable(weight):
        return None
    device = weight.device
    return decode_with(body, (lambda: CudaGraphs(device)) if paged.graphs_wanted() else (lambda: no_capture))


def decode_with(body: DecoderModules, new_capture: Callable[[], Capture]) -> CapturedDecoding:
    """Let a body decode by steps that are captured in this way."""
    decoding = _OF_BODY[body] = CapturedDecoding(body, new_capture)
    return decoding
