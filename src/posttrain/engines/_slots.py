"""The decoding batch: one slot a sequence, all advanced together.

Nothing here waits or knows of requests; `posttrain.engines._pump` decides which sequence gets which slot. What
a step needs of each sequence lies in arrays over the slots, so that a step costs the same few operations however many
sequences there are; only finished ones, and those with stop strings, are looked at one by one.

S slots, B of them in use, N tokens of a step, V vocabulary, D width, C longest completion.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posttrain import kernels
from posttrain.engines import Sampling
from posttrain.engines._random import uniform
from posttrain.engines._stopping import StopStrings
from posttrain.engines._truncation import Rules, choose
from posttrain.errors import RunFailed
from posttrain.kernels import Drawing
from posttrain.policies import Packed, Policy
from posttrain.types import Completion, FloatArray, IntArray, StopReason

MANY, FEW = 8, 4
"""Tokens that a sequence writes between two looks at the requests, where the body writes several in one go: many, or
few while sequences end within them, since what is drawn after an end is dropped. Only then are callers answered, and
may they cancel."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens, with a vector each where the model takes them (`posttrain.types.Segment.vectors`)."""

    token_ids: IntArray
    vectors: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, part: slice) -> "Piece":
        return Piece(self.token_ids[part], None if self.vectors is None else self.vectors[part])


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be written after a prompt."""

    prompt: Piece
    sampling: Sampling
    max_tokens: int
    """The limit of the sampling settings, or what the context leaves if that is less."""
    stop_token_ids: IntArray
    """The model's end tokens and those of the sampling settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step did."""

    finished: dict[int, Completion]
    """By slot, which is free again."""
    tokens: int
    """Written, by all sequences."""
    steps: int
    """How many each sequence could have written."""


class Slots:
    """Sequences in progress. One more slot, `stage`, holds a prompt whose sequences have not all begun."""

    def __init__(self, policy: Policy, slots: int, prefill_tokens: int) -> None:
        body = policy.body
        self.policy = policy
        self.body = body
        self.size = slots
        self.stage = slots
        self.prefill_tokens = prefill_tokens
        self.cache = body.new_cache(slots + 1, body.context)
        self.device = next(policy.parameters()).device
        self.version = policy.version
        self.hidden_SD: Tensor | None = None  # of the last token of each sequence; of the dtype that the body gives
        self.active_S = np.zeros(slots, bool)
        self.position_S = np.zeros(slots, np.int64)
        self.limit_S = np.zeros(slots, np.int64)
        self.key_S = np.zeros(slots, np.uint64)
        self.temperature_S = np.ones(slots, np.float64)
        self.top_k_S = np.zeros(slots, np.int64)
        self.top_p_S = np.ones(slots, np.float64)
        self.min_p_S = np.zeros(slots, np.float64)
        self.all_kept_S = np.zeros(slots, bool)  # whether no rule drops any token
        self.ends_SV = np.zeros((slots, body.vocabulary_size), bool)
        self.ids_SC = np.zeros((slots, 0), np.int64)
        self.logp_SC = np.zeros((slots, 0), np.float32)
        self.watched: dict[int, StopStrings] = {}
        self.ahead = MANY

    def free(self) -> list[int]:
        """Slots that hold no sequence, in order."""
        free: list[int] = np.flatnonzero(~self.active_S).tolist()
        return free

    def prefill(self, prompts: Sequence[tuple[int, Piece]]) -> None:
        """Compute prompts, each into the slot beside it."""
        for batch in passes(prompts, self.prefill_tokens):
            self._extend([slot for slot, _ in batch], pack([piece for _, piece in batch], self.device))

    def begin(self, order: Order, source: int, slots: Sequence[int], keys: Sequence[int]) -> None:
        """Let a sequence begin in each of `slots`, after the prompt that has been computed into `source`."""
        assert self.hidden_SD is not None, "prefill comes before"
        rows = np.array(slots)
        self.cache.copy(source, [slot for slot in slots if slot != source])
        self.hidden_SD[torch.from_numpy(rows).to(self.device)] = self.hidden_SD[source].clone()
        sampling = order.sampling
        self.active_S[rows] = True
        self.position_S[rows] = 0
        self.limit_S[rows] = order.max_tokens
        self.key_S[rows] = np.array(keys, np.uint64)
        self.temperature_S[rows] = sampling.temperature
        self.top_k_S[rows] = min(sampling.top_k, self.body.vocabulary_size)
        self.top_p_S[rows] = sampling.top_p
        self.min_p_S[rows] = sampling.min_p
        all_ranks = sampling.top_k == 0 or sampling.top_k >= self.body.vocabulary_size
        self.all_kept_S[rows] = all_ranks and sampling.top_p >= 1 and sampling.min_p <= 0
        self.ends_SV[rows] = False
        self.ends_SV[rows[:, None], order.stop_token_ids] = True
        missing = order.max_tokens - self.ids_SC.shape[1]
        if missing > 0:
            self.ids_SC = np.pad(self.ids_SC, ((0, 0), (0, missing)))
            self.logp_SC = np.pad(self.logp_SC, ((0, 0), (0, missing)))
        if sampling.stop:
            self.watched |= {slot: StopStrings(sampling.stop, self.policy.tokenizer.decode) for slot in slots}

    def close(self) -> None:
        """Give up what all of them hold, after the last step."""
        self.cache.close()

    def release(self, slot: int) -> None:
        """Give up what a slot holds."""
        self.cache.release(slot)
        self.watched.pop(slot, None)
        if slot != self.stage:
            self.active_S[slot] = False

    def step(self) -> Step:
        """Advance every sequence, by one token or a few; what is finished leaves its slot."""
        row_B = np.flatnonzero(self.active_S)
        token_BN, logp_BN, count_B = self._next(row_B)
        number_N = np.arange(token_BN.shape[1])
        written_B, count_B = count_B, np.minimum(count_B, self.limit_S[row_B] - self.position_S[row_B])
        ends_BN = self.ends_SV[row_B[:, None], token_BN] & (number_N < count_B[:, None])
        ended_B = ends_BN.any(1)
        count_B = np.where(ended_B, ends_BN.argmax(1) + 1, count_B)
        self.ahead = FEW if (count_B < written_B).any() else MANY  # what was drawn after an end is dropped
        i, n = np.nonzero(number_N < count_B[:, None])
        place = row_B[i], self.position_S[row_B[i]] + n
        self.ids_SC[place], self.logp_SC[place] = token_BN[i, n], logp_BN[i, n]
        self.position_S[row_B] += count_B
        texts = self._watch(row_B[~ended_B])
        over_B = ended_B | (self.position_S[row_B] == self.limit_S[row_B])
        if texts:
            over_B |= np.isin(row_B, list(texts))
        finished = {slot: self._finish(slot, texts.get(slot)) for slot in row_B[over_B].tolist()}
        return Step(finished=finished, tokens=int(count_B.sum()), steps=len(number_N))

    def _next(self, row_B: IntArray) -> tuple[IntArray, NDArray[np.float64], IntArray]:
        """[B, N] ids and log-probabilities of the next tokens, and how many there are of each sequence.

        Sequences that go on, and drop no token, write several where the body can do that; what they write is the same.
        """
        own_B = self.all_kept_S[row_B] & (self.position_S[row_B] > 0)
        written = self._write(row_B[own_B]) if own_B.any() else None
        if written is None:
            token_B, logp_B = self._on_host(*self._choose(row_B, self._read(row_B)))
            return token_B[:, None], logp_B[:, None], np.ones(len(row_B), np.int64)
        shape = len(row_B), written[0].shape[1]
        token_BN, logp_BN, count_B = np.zeros(shape, np.int64), np.zeros(shape), np.where(own_B, shape[1], 1)
        token_BN[own_B], logp_BN[own_B] = self._on_host(*written)
        if not own_B.all():
            others_B = row_B[~own_B]
            token_BN[~own_B, 0], logp_BN[~own_B, 0] = self._on_host(*self._choose(others_B, self._read(others_B)))
        return token_BN, logp_BN, count_B

    def _write(self, row_B: IntArray) -> tuple[Tensor, Tensor] | None:
        """Several of each sequence, if the body does: no more than any may have, and one where texts are watched."""
        most = int((self.limit_S[row_B] - self.position_S[row_B]).max())
        steps = 1 if self.watched else min(self.ahead, most)
        last_B = torch.from_numpy(self.ids_SC[row_B, self.position_S[row_B] - 1])
        return self.body.write(self.cache, row_B.tolist(), last_B, self._drawing(row_B), steps)

    def _drawing(self, row_B: IntArray) -> Drawing:
        given = self.temperature_S[row_B], self.key_S[row_B], self.position_S[row_B].astype(np.uint64)
        temperature_B, key_B, counter_B = map(torch.from_numpy, given)
        return Drawing(temperature_B=temperature_B, key_B=key_B, counter_B=counter_B)

    def _read(self, row_B: IntArray) -> Tensor:
        """[B, D] the last hidden states of slots, after what each has written last is appended to it."""
        going_B = row_B[self.position_S[row_B] > 0]
        if len(going_B):
            last_B = torch.from_numpy(self.ids_SC[going_B, self.position_S[going_B] - 1])  # the body sends them on
            packed = Packed(token_ids_L=last_B, starts=tuple(range(len(going_B) + 1)))
            if len(going_B) == len(row_B):  # nothing to be kept: these are read now, and the next step makes new ones
                return self.body.extend(self.cache, going_B.tolist(), packed)
            self._extend(going_B.tolist(), packed)
        assert self.hidden_SD is not None, "a sequence begins with a prompt"
        return self.hidden_SD[torch.from_numpy(row_B).to(self.device)]

    def _extend(self, slots: Sequence[int], pieces: Packed) -> None:
        """Append a piece of tokens to each slot, and keep the last hidden state of each."""
        hidden_BD = self.body.extend(self.cache, slots, pieces)
        if self.hidden_SD is None:
            self.hidden_SD = hidden_BD.new_empty(self.size + 1, hidden_BD.shape[1])
        self.hidden_SD[torch.tensor(slots, device=self.device)] = hidden_BD

    def _choose(self, row_B: IntArray, hidden_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities of the next tokens."""

        def tensor(array_S: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array_S[row_B])

        rules = Rules(
            temperature_B=tensor(self.temperature_S),
            top_k_B=tensor(self.top_k_S),
            top_p_B=tensor(self.top_p_S),
            min_p_B=tensor(self.min_p_S),
        )
        drawing = self._drawing(row_B)
        logits_BV = self.body.next_logits(self.cache, hidden_BD)
        return choose(logits_BV, rules, draws(drawing.key_B, drawing.counter_B))

    def _on_host(self, token_B: Tensor, logp_B: Tensor) -> tuple[IntArray, NDArray[np.float64]]:
        """What was chosen, and is something that can be chosen."""
        if token_B.device.type == "cpu":
            tokens, logps = token_B.numpy(), logp_B.numpy()
        else:  # One copy to the host for both; float64 holds every token id exactly.
            tokens, logps = torch.stack((token_B.to(torch.float64), logp_B)).cpu().numpy()
        if not np.isfinite(logps).all():
            raise RunFailed(
                f"role {self.policy.role}: the model gives logits that are not finite (NaN or infinity) after "
                f"{self.policy.version} updates, so nothing can be sampled from it. Training has diverged, or the "
                "weights were broken when they were loaded: lower the learning rate, or check the model's folder."
            )
        return tokens.astype(np.int64), logps

    def _watch(self, row_B: IntArray) -> dict[int, str]:
        """Texts, cut at the match, of the sequences that just wrote a stop string."""
        texts = {}
        for slot in row_B.tolist() if self.watched else ():
            watched = self.watched.get(slot)
            text = watched.push(int(self.ids_SC[slot, self.position_S[slot] - 1])) if watched else None
            if text is not None:
                texts[slot] = text
        return texts

    def _finish(self, slot: int, text: str | None) -> Completion:
        """The completion of a slot, which becomes free; `text` is given where a stop string ended it."""
        ids = self.ids_SC[slot, : self.position_S[slot]].copy()
        ended = bool(self.ends_SV[slot, ids[-1]])
        stop_reason: StopReason = "length" if text is None and not ended else "stop"
        if text is None:
            text = self.policy.tokenizer.decode(ids[:-1] if ended else ids)
        logp = self.logp_SC[slot, : len(ids)].copy()
        self.release(slot)
        return Completion(token_ids=ids, logp=logp, stop_reason=stop_reason, version=self.version, text=text)


def draws(key_B: Tensor, counter_B: Tensor) -> Tensor:
    """[B] numbers in [0, 1), float64, of uint64; by a kernel where there is one, to the same bits."""
    drawn_B = kernels.uniform(key_B, counter_B)
    return torch.from_numpy(uniform(key_B.numpy(), counter_B.numpy())) if drawn_B is None else drawn_B


def passes(prompts: Sequence[tuple[int, Piece]], limit: int) -> Iterator[list[tuple[int, Piece]]]:
    """Group prompts, in order, so that no pass has more than `limit` tokens; a longer one takes several passes.

    A prompt is cut as its own length says, so that how it is computed does not depend on what is beside it.
    """
    batch: list[tuple[int, Piece]] = []
    room = limit
    for slot, prompt in prompts:
        for begin in range(0, len(prompt), limit):
            piece = prompt[begin : begin + limit]
            if len(piece) > room:
                yield batch
                batch, room = [], limit
            batch.append((slot, piece))
            room -= len(piece)
    if batch:
        yield batch


def pack(pieces: Sequence[Piece], device: torch.device) -> Packed:
    """Lay pieces end to end; those without vectors get zeros where others have some."""
    token_ids_L = torch.from_numpy(np.concatenate([piece.token_ids for piece in pieces])).to(device)
    starts = (0, *accumulate(map(len, pieces)))
    width = next((piece.vectors.shape[1] for piece in pieces if piece.vectors is not None), None)
    if width is None:
        return Packed(token_ids_L=token_ids_L, starts=starts)
    parts = [np.zeros((len(p), width), np.float32) if p.vectors is None else p.vectors for p in pieces]
    vectors_LD = torch.from_numpy(np.concatenate(parts)).to(device)
    return Packed(token_ids_L=token_ids_L, starts=starts, vectors_LD=vectors_LD)
