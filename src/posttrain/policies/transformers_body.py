"""Any causal model of ``transformers``, with the same contract as the native decoder, but slower.

Sequences are padded at the right, where a causal model does not see it, to a length that is a function of the sequence
alone, so that no sequence has an effect on another. Keys and values are kept for each slot; sequences that hold
equally many tokens are decoded together. Models with another kind of memory (state-space and linear attention layers)
compute a sequence again for each token. Code that comes with a model is never run.

N sequences, L tokens, D width.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.errors.foreign import guard
from posttrain.policies import Body, Cache, Packed
from posttrain.policies._attention import ROWS, pad_rows, padded_length
from posttrain.policies._cache import as_array, of_array
from posttrain.policies.folder import Folder, Origin, check_context, write_folder
from posttrain.types import Array

PROBE_TOKENS = 40
"""Length of the sequence that a model is tried with when it is loaded."""
_MOST_TIMES, _FEW_WEIGHTS = 16, 10**7
"""Largest ratio of a config's weights to stored ones: tied ones are stored once, and quantized ones packed."""


class SlotCache:
    """What each slot holds: its tokens, or the keys and values of each layer, [1, heads, tokens, head width]."""

    def __init__(self, slots: int, like: Tensor) -> None:
        self.like = like
        """A tensor of the type and on the device of keys and values."""
        self.lengths = np.zeros(slots, np.int64)
        self.token_ids: list[Tensor] = [torch.zeros(0, dtype=torch.int64)] * slots
        self.layers: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(slots)]

    def close(self) -> None:
        """No memory is kept."""

    def release(self, slot: int) -> None:
        """Free a slot for another sequence."""
        self.lengths[slot] = 0
        self.token_ids[slot] = self.token_ids[slot][:0]
        self.layers[slot] = []

    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Give every target slot what the source slot holds; nothing is written in place, so that they can share."""
        for target in targets:
            self.lengths[target] = self.lengths[source]
            self.token_ids[target] = self.token_ids[source]
            self.layers[target] = self.layers[source]

    def take_out(self, slot: int, tokens: int) -> list[Array] | None:
        """Keys and values, layer by layer: [1, heads, tokens, width]."""
        pairs = self.layers[slot]
        return [as_array(tensor[:, :, :tokens]) for pair in pairs for tensor in pair] if pairs else None

    def put_in(self, slot: int, stored: Sequence[Array]) -> None:
        """See `posttrain.policies.Cache`."""
        whole = [of_array(array, self.like) for array in stored]
        self.layers[slot] = list(zip(whole[::2], whole[1::2], strict=True))
        self.lengths[slot] = whole[0].shape[2]


class TransformersBody(Body):
    """A model of ``transformers`` as a body."""

    def __init__(self, causal: Any, context: int) -> None:
        super().__init__()
        self.causal: Any = causal
        self.config = causal.config.get_text_config()
        head = causal.get_output_embeddings()
        self.vocabulary_size, self.width = head.weight.shape
        self.context = context
        self.recomputes = bool(causal._is_stateful)

    def hidden(self, packed: Packed) -> Tensor:
        """[L, D] final hidden states; differentiable."""
        assert packed.vectors_LD is None, "vectors are refused where a sequence is begun: see Body.vector_width"
        if packed.after is not None:
            alone, places_L = packed.alone()
            return self.hidden(alone).index_select(0, places_L)
        token_ids_L, lengths = packed.token_ids_L, packed.lengths
        pieces: dict[int, Tensor] = {}
        for size, members in _by_size(enumerate(lengths), self.context).items():
            ids_NS = _padded([token_ids_L[packed.starts[i] : packed.starts[i + 1]] for i in members], size)
            inputs = {"input_ids": ids_NS}
            if packed.guessed_L is not None:
                guessed_NS = _padded([packed.guessed_L[packed.starts[i] : packed.starts[i + 1]] for i in members], size)
                embed, share = self.causal.get_input_embeddings(), packed.foresight
                inputs = {"inputs_embeds": (1.0 - share) * embed(ids_NS) + share * embed(guessed_NS)}
            states_NSD = self.causal.base_model(**inputs, use_cache=False).last_hidden_state
            for row, i in enumerate(members):
                pieces[i] = states_NSD[row, : lengths[i]]
        return torch.cat([pieces[i] for i in sorted(pieces)])

    @property
    def summed_in_parts(self) -> tuple[nn.Parameter, ...]:
        """Those of the last layer, and its adapters."""
        return tuple(self.causal.get_output_embeddings().parameters())

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """[T, V] next-token logits of hidden states, with the scaling and soft capping of the config."""
        logits_TV: Tensor = self.causal.get_output_embeddings()(pad_rows(hidden_TD))[: len(hidden_TD)]
        if scale := getattr(self.config, "logit_scale", None):  # Cohere
            logits_TV = logits_TV * scale
        if scaling := getattr(self.config, "logits_scaling", None):  # Granite
            logits_TV = logits_TV / scaling
        if cap := getattr(self.config, "final_logit_softcapping", None):  # Gemma 2
            logits_TV = torch.tanh(logits_TV / cap) * cap
        return logits_TV

    def new_cache(self, slots: int, capacity: int) -> SlotCache:
        """An empty cache; it takes the room that it needs, whatever `capacity` is."""
        like = next(self.causal.parameters())
        return SlotCache(slots, torch.empty(0, dtype=like.dtype, device=like.device))

    @torch.no_grad()
    def extend(self, cache: Cache, slots: Sequence[int], packed: Packed) -> Tensor:
        """[B, D] hidden state of the last token of each sequence, after appending sequence i to slot ``slots[i]``."""
        lengths = packed.lengths
        assert isinstance(cache, SlotCache), "the cache is this body's own"
        assert len(set(slots)) == len(slots) == len(lengths) and min(lengths) > 0, "one non-empty sequence a slot"
        ids_L = packed.token_ids_L.to(next(self.causal.parameters()).device)
        new = [ids_L[begin:end] for begin, end in zip(packed.starts, packed.starts[1:], strict=False)]
        states = self._recomputed(cache, slots, new) if self.recomputes else self._continued(cache, slots, new)
        for slot, n in zip(slots, lengths, strict=True):
            cache.lengths[slot] += n
        return states

    def save(self, folder: Path, state: Mapping[str, Tensor], origin: Origin) -> None:
        """Write a Hugging Face folder; `state` is the state dict without adapters."""

        def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
            # Not written here by name, because some models have other names in files than in memory.
            self.causal.save_pretrained(path.parent, state_dict=dict(tensors), max_shard_size="1000GB")

        with _quiet():
            write_folder(folder, {name: state[name] for name in origin.stored}, origin, write=write)

    def _recomputed(self, cache: SlotCache, slots: Sequence[int], new: Sequence[Tensor]) -> Tensor:
        """[B, D] last states from the whole sequences."""
        for slot, ids in zip(slots, new, strict=True):
            cache.token_ids[slot] = torch.cat([cache.token_ids[slot].to(ids), ids])
        sequences = [cache.token_ids[slot] for slot in slots]
        starts = (0, *accumulate(len(ids) for ids in sequences))
        states_LD = self.hidden(Packed(token_ids_L=torch.cat(sequences), starts=starts))
        return states_LD[torch.tensor(starts[1:], device=states_LD.device) - 1]

    def _continued(self, cache: SlotCache, slots: Sequence[int], new: Sequence[Tensor]) -> Tensor:
        """[B, D] last states from the new tokens, and the keys and values that the slots hold."""
        last: list[Tensor] = [torch.empty(0)] * len(slots)
        by_past: dict[int, list[int]] = defaultdict(list)
        for i, slot in enumerate(slots):
            by_past[int(cache.lengths[slot])].append(i)
        for past, same in by_past.items():
            sizes = _by_size(((i, len(new[i])) for i in same), self.context - past, decoding=past > 0)
            for size, members in sizes.items():
                held = [cache.layers[slots[i]] for i in members]
                states_NSD, layers = self._step(held, _padded([new[i] for i in members], size))
                for row, i in enumerate(members):
                    end = past + len(new[i])
                    last[i] = states_NSD[row, len(new[i]) - 1]
                    cache.layers[slots[i]] = [(k[row : row + 1, :, :end], v[row : row + 1, :, :end]) for k, v in layers]
        return torch.stack(last)

    def _step(
        self, held: Sequence[list[tuple[Tensor, Tensor]]], ids_NS: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """States of new tokens, and keys and values of all tokens, for sequences that hold equally many."""
        from transformers import DynamicCache

        # Too few rows would be rounded differently; see ROWS.
        copies = -len(held) % ROWS if ids_NS.shape[1] == 1 else 0
        held = [*held, *[held[-1]] * copies]
        ids_NS = torch.cat([ids_NS, ids_NS[-1:].expand(copies, -1)])
        cache = DynamicCache()
        for layer, pairs in enumerate(zip(*held, strict=True)):
            cache.update(torch.cat([k for k, _ in pairs]), torch.cat([v for _, v in pairs]), layer)
        states_NSD = self.causal.base_model(input_ids=ids_NS, past_key_values=cache, use_cache=True).last_hidden_state
        layers: list[Any] = cache.layers
        return states_NSD, [(layer.keys, layer.values) for layer in layers]


def read_transformers_body(
    folder: Folder, dtype: torch.dtype, context: int | None, reason: str
) -> tuple[TransformersBody, dict[str, torch.dtype]]:
    """A body with a folder's weights, and the types that they are stored in."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        raise UserError(
            f"'{folder.path}' needs the transformers package ({reason}); install it with: "
            "pip install 'posttrain[transformers]'"
        ) from None
    if (folder.path / "adapter_config.json").exists():
        raise UserError(
            f"'{folder.path}' holds a model and an adapter_config.json, which makes transformers read another model "
            "that the file names; move the adapter into a folder of its own"
        )
    with _quiet(), guard(f"transformers cannot load '{folder.path}'"):
        auto: Any = AutoModelForCausalLM
        _check_size(folder, auto)
        causal, info = auto.from_pretrained(
            folder.path,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    for key, what in (("missing_keys", "lacks"), ("unexpected_keys", "has no place for")):
        for name in sorted(info[key]):
            raise UserError(f"'{folder.path}' {what} the tensor '{name}': its config.json and its weights disagree")
    limit = getattr(causal.config.get_text_config(), "max_position_embeddings", None) or context
    if limit is None:
        raise UserError(f"'{folder.path}' does not state the longest sequence; set the model's context")
    body = TransformersBody(causal.eval(), check_context(context, limit))
    _try(body, folder)
    return body, _stored_types(folder, causal.state_dict())


def _check_size(folder: Folder, auto: Any) -> None:
    """Raise `UserError` for a config that requires many more weights than the files hold, before room is made."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder.path, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        empty = auto.from_config(config, trust_remote_code=False)
    wanted = sum(parameter.numel() for parameter in empty.parameters())
    held = sum(math.prod(shape) for shape in folder.shapes.values())
    if wanted > _MOST_TIMES * held + _FEW_WEIGHTS:
        raise UserError(
            f"'{folder.path}': its config.json requires {wanted:,} weights, and its files hold {held:,}; they do not "
            "belong together"
        )


def _stored_types(folder: Folder, state: Mapping[str, Tensor]) -> dict[str, torch.dtype]:
    """Types by name: one name for tensors that are tied, the usual type for those that are renamed on loading."""
    by_file = {name: tensor.dtype for name, tensor in folder.tensors()}
    usual = max(by_file.values(), key=list(by_file.values()).count)
    names: dict[int, str] = {}
    for name, tensor in state.items():
        if name in by_file or tensor.data_ptr() not in names:
            names[tensor.data_ptr()] = name
    return {name: by_file.get(name, usual) for name in names.values()}


@torch.no_grad()
def _try(body: TransformersBody, folder: Folder) -> None:
    """Check on a short sequence that the body computes what the model does, with and without its cache."""
    generator = torch.Generator().manual_seed(0)
    ids_L = torch.randint(body.vocabulary_size, (min(PROBE_TOKENS, body.context),), generator=generator)
    expected_LV = body.causal(input_ids=ids_L[None], use_cache=False).logits[0]
    states_LD = body.hidden(Packed(token_ids_L=ids_L, starts=(0, len(ids_L))))
    if not torch.isfinite(expected_LV).all():
        raise UserError(
            f"'{folder.path}': the model's logits are not finite (NaN or infinity); its weights are damaged"
        )
    if not _close(body.logits(states_LD), expected_LV):
        kind = folder.config.get("model_type")
        raise UserError(
            f"models of the type {kind!r} make their logits in a way that is not known here, so '{folder.path}' cannot "
            "be used"
        )
    if not body.recomputes:
        cache = body.new_cache(1, len(ids_L))
        body.extend(cache, [0], Packed(token_ids_L=ids_L[:-1], starts=(0, len(ids_L) - 1)))
        last_1D = body.extend(cache, [0], Packed(token_ids_L=ids_L[-1:], starts=(0, 1)))
        body.recomputes = not _close(last_1D, states_LD[-1:])


def _close(given: Tensor, expected: Tensor) -> bool:
    """Whether tensors are equal up to the rounding of their type."""
    tolerance = 1e-4 if expected.dtype == torch.float32 else 5e-2
    return bool((given - expected).abs().max() <= tolerance * expected.abs().max())


def _by_size(lengths: Iterable[tuple[int, int]], most: int, *, decoding: bool = False) -> dict[int, list[int]]:
    """Sequences (index, length) by the padded length that they share; single tokens after others are not padded."""
    sizes: dict[int, list[int]] = defaultdict(list)
    for i, length in lengths:
        if length:
            sizes[1 if decoding and length == 1 else min(padded_length(length), most)].append(i)
    return sizes


def _padded(sequences: Sequence[Tensor], size: int) -> Tensor:
    """[N, size] token ids; the padding repeats the last token, and comes after all tokens that are attended to."""
    return torch.stack([torch.cat([ids, ids[-1:].expand(size - len(ids))]) for ids in sequences])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the progress bars and reports of transformers off the terminal."""
    from transformers.utils import logging as module

    logging: Any = module
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)  # its coloured reports repeat the exception's message
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
