"""The decoding batch: one slot per sequence, all advanced together.

`posttrain.engines._scheduler` decides which sequence gets which slot. The state of the sequences is in arrays over the
slots, so that a step takes the same few operations for any number of sequences. Only finished ones, and those with stop
strings, are handled one by one.

S slots, B of them in use, N tokens of a step, V vocabulary, D width, C longest completion. The 2 numbers of a token are
its log-probability and the entropy of its distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posttrain import kernels
from posttrain.engines import Matcher, Written
from posttrain.engines._passes import Piece, pack, passes
from posttrain.engines._requests import Request, Room, tokens_of
from posttrain.engines._stopping import StopStrings
from posttrain.engines._truncation import Rules, choose
from posttrain.engines._watching import choose_allowed, likeliest
from posttrain.errors import BrokenModel, PosttrainError, RunFailed
from posttrain.kernels import Drawing
from posttrain.policies import Packed, Policy
from posttrain.policies._cache import KeyValueCache
from posttrain.types import Completion, FloatArray, IntArray, StopReason

TOGETHER = 2048
"""Tokens of several prompts in one pass, where the model is so large that memory counts more than the passes."""
FEWEST = 16
"""Sequences that are in progress together, whatever memory they take."""
MANY, FEW = 8, 4
"""Tokens per sequence and step, where the body can sample several in one call: many, or few while sequences end within
them, since tokens after an end are dropped. Callers are answered, and can cancel, only between steps.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of a step."""

    finished: dict[int, Completion]
    """By slot, which is free now."""
    tokens: int
    """Sampled tokens of all sequences."""
    steps: int
    """Most tokens that each sequence could have sampled."""
    written: dict[int, Written]
    """What was sampled, by slot, of sequences that are listened to; the number is the slot's."""
    failed: dict[int, PosttrainError]
    """By slot, sequences that cannot go on. Their slots are still taken."""


class Slots:
    """Sequences in progress. One more slot, `stage`, holds a prompt whose sequences have not all started."""

    def __init__(self, policy: Policy, slots: int, prefill_tokens: int, prefix_bytes: int = 0) -> None:
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
        self.most_tokens = body.cached_tokens
        self.taken_S = np.zeros(slots, np.int64)  # tokens that the cache will hold of each at most
        self.key_S = np.zeros(slots, np.uint64)
        self.temperature_S = np.ones(slots, np.float64)
        self.top_k_S = np.zeros(slots, np.int64)
        self.top_p_S = np.ones(slots, np.float64)
        self.min_p_S = np.zeros(slots, np.float64)
        self.all_kept_S = np.zeros(slots, bool)  # whether no token is truncated, and no logits are needed
        self.ends_SV = np.zeros((slots, body.vocabulary_size), bool)
        self.ids_SC = np.zeros((slots, 0), np.int64)
        self.numbers_SC2 = np.zeros((slots, 0, 2), np.float32)
        self.watched: dict[int, StopStrings] = {}
        self.likeliest: dict[int, int] = {}  # how many are wanted
        self.matchers: dict[int, Matcher] = {}
        self.masked: set[int] = set()
        self.listened: set[int] = set()
        self.cached: dict[int, int] = {}  # lengths of prompts whose keys and values go with the completion
        self.ahead = MANY
        self.prompts: dict[int, IntArray] = {}  # of sequences whose pages are to be kept
        self.stamp: object | None = None
        self.decodes_alike = False
        self.prefix_bytes = prefix_bytes

    def renew(self) -> None:
        """Forget prefixes that the model as it is now would compute otherwise. Call it before sequences begin."""
        cache = self.cache
        own = self.body.prefix_stamp if self.prefix_bytes else None
        stamp = None if own is None else (self.version, own)
        if stamp == self.stamp or not isinstance(cache, KeyValueCache):
            return
        cache.forget()
        cache.keep_prefixes(0 if stamp is None else self.prefix_bytes)
        self.stamp, self.decodes_alike = stamp, self.body.decodes_alike

    def free(self) -> list[int]:
        """Slots that hold no sequence, in order."""
        free: list[int] = np.flatnonzero(~self.active_S).tolist()
        return free

    def room(self) -> "Room":
        """The room for more sequences."""
        if self.most_tokens is None:
            return Room(math.inf, 0)
        return Room(self.most_tokens - int(self.taken_S[self.active_S].sum()), FEWEST - int(self.active_S.sum()))

    def prefill(self, requests: Sequence[tuple[int, Request]]) -> list[int]:
        """Compute prompts, each into its slot; returns how many tokens of each were there already."""
        given = [(slot, request) for slot, request in requests if request.stored is not None]
        self._go_on(given)
        counts = {slot: len(request.prompt) - 1 for slot, request in given}
        others = [(slot, request.prompt) for slot, request in requests if request.stored is None]
        counts |= zip((slot for slot, _ in others), self._prefill(others), strict=True)
        return [counts[slot] for slot, _ in requests]

    def _go_on(self, given: Sequence[tuple[int, Request]]) -> None:
        """Put in the keys and values that come with prompts, and compute their last tokens: as after any other token,
        apart from whole prompts, so that it does not depend on these.
        """
        for slot, request in given:
            self.cache.put_in(slot, request.stored or ())
        if given:
            self._extend([slot for slot, _ in given], pack([request.prompt[-1:] for _, request in given], self.device))

    def _prefill(self, prompts: Sequence[tuple[int, Piece]]) -> list[int]:
        """Those that come without."""
        taken = [0] * len(prompts)
        if isinstance(self.cache, KeyValueCache) and self.keeps:
            # Two tokens are left: one alone would be decoded, which not every body does to the same bits.
            wanted = [(slot, p.token_ids, len(p) - 2 if p.vectors is None else 0) for slot, p in prompts]
            taken = self.cache.begin(wanted)
            prompts = [(slot, piece[n:]) for (slot, piece), n in zip(prompts, taken, strict=True)]
        together = self.prefill_tokens if self.most_tokens is None else min(self.prefill_tokens, TOGETHER)
        for batch in passes(prompts, self.prefill_tokens, together):
            self._extend([slot for slot, _ in batch], pack([piece for _, piece in batch], self.device))
        return taken

    def start(self, request: Request, source: int, slots: Sequence[int], keys: Sequence[int]) -> None:
        """Start a sequence in each of `slots`, after the prompt that was computed into `source`."""
        assert self.hidden_SD is not None, "prefill comes before"
        rows = np.array(slots)
        self.cache.copy(source, [slot for slot in slots if slot != source])
        self.hidden_SD[torch.from_numpy(rows).to(self.device)] = self.hidden_SD[source].clone()
        sampling = request.sampling
        self.active_S[rows] = True
        self.position_S[rows] = 0
        self.limit_S[rows] = request.max_tokens
        self.taken_S[rows] = tokens_of(request) + -(-len(request.prompt) // len(slots))
        self.key_S[rows] = np.array(keys, np.uint64)
        self.temperature_S[rows] = sampling.temperature
        self.top_k_S[rows] = min(sampling.top_k, self.body.vocabulary_size)
        self.top_p_S[rows] = sampling.top_p
        self.min_p_S[rows] = sampling.min_p
        all_ranks = sampling.top_k == 0 or sampling.top_k >= self.body.vocabulary_size
        watch = request.watch
        self.all_kept_S[rows] = all_ranks and sampling.top_p >= 1 and sampling.min_p <= 0 and not watch.needs_logits
        self.ends_SV[rows] = False
        self.ends_SV[rows[:, None], request.stop_token_ids] = True
        missing = request.max_tokens - self.ids_SC.shape[1]
        if missing > 0:
            self.ids_SC = np.pad(self.ids_SC, ((0, 0), (0, missing)))
            self.numbers_SC2 = np.pad(self.numbers_SC2, ((0, 0), (0, missing), (0, 0)))
        if self.stamp is not None and request.prompt.vectors is None and request.stored is None:
            self.prompts |= dict.fromkeys(slots, request.prompt.token_ids)
        if sampling.stop:
            self.watched |= {slot: StopStrings(sampling.stop, self.policy.tokenizer.decode) for slot in slots}
        if watch.likeliest:
            self.likeliest |= dict.fromkeys(slots, min(watch.likeliest, self.body.vocabulary_size))
        if watch.matcher:
            self.matchers |= {slot: watch.matcher() for slot in slots}
            self.masked.update(slots if watch.masked else ())
        if watch.listen:
            self.listened.update(slots)
        if request.caching:
            self.cached |= dict.fromkeys(slots, len(request.prompt))

    @property
    def keeps(self) -> bool:
        """Whether something is kept for sequences that come later."""
        return self.prefix_bytes_held > 0

    @property
    def prefix_bytes_held(self) -> int:
        """Bytes of it."""
        return len(self.cache.kept) * self.cache.page_bytes if isinstance(self.cache, KeyValueCache) else 0

    def take_dropped(self) -> int:
        """Room of tokens, since the last call, that others have taken the place of."""
        if not isinstance(self.cache, KeyValueCache):
            return 0
        pages, self.cache.kept.dropped = self.cache.kept.dropped, 0
        return pages * kernels.PAGE

    def rest(self) -> None:
        """No sequence is in progress: of a large model, only what is kept stays."""
        if self.most_tokens is not None and isinstance(self.cache, KeyValueCache):
            self.cache.decoding = None

    def close(self) -> None:
        """Free all slots, after the last step."""
        self.cache.close()

    def release(self, slot: int) -> None:
        """Free a slot."""
        self.cache.release(slot)
        self.prompts.pop(slot, None)
        self.watched.pop(slot, None)
        self.likeliest.pop(slot, None)
        self.matchers.pop(slot, None)
        self.masked.discard(slot)
        self.listened.discard(slot)
        self.cached.pop(slot, None)
        if slot != self.stage:
            self.active_S[slot] = False

    def step(self) -> Step:
        """Advance every sequence, by one token or a few; finished sequences leave their slots."""
        row_B = np.flatnonzero(self.active_S)
        self.failed: dict[int, PosttrainError] = {}
        self.found: dict[int, tuple[IntArray, FloatArray]] = {}
        token_BN, numbers_BN2, count_B = self._next(row_B)
        number_N = np.arange(token_BN.shape[1])
        written_B, count_B = count_B, np.minimum(count_B, self.limit_S[row_B] - self.position_S[row_B])
        ends_BN = self.ends_SV[row_B[:, None], token_BN] & (number_N < count_B[:, None])
        ended_B = ends_BN.any(1)
        count_B = np.where(ended_B, ends_BN.argmax(1) + 1, count_B)
        self.ahead = FEW if (count_B < written_B).any() else MANY  # tokens after an end are dropped
        i, n = np.nonzero(number_N < count_B[:, None])
        place = row_B[i], self.position_S[row_B[i]] + n
        self.ids_SC[place], self.numbers_SC2[place] = token_BN[i, n], numbers_BN2[i, n]
        self.position_S[row_B] += count_B
        written = self._heard(row_B, count_B) if self.listened else {}
        texts = self._watch(row_B[~ended_B])
        over_B = ended_B | (self.position_S[row_B] == self.limit_S[row_B])
        if texts:
            over_B |= np.isin(row_B, list(texts))
        if self.matchers:
            self._push(row_B[~over_B])
        over_B &= ~np.isin(row_B, list(self.failed))
        finished = {slot: self._finish(slot, texts.get(slot)) for slot in row_B[over_B].tolist()}
        return Step(
            finished=finished, tokens=int(count_B.sum()), steps=len(number_N), written=written, failed=self.failed
        )

    def _next(self, row_B: IntArray) -> tuple[IntArray, NDArray[np.float64], IntArray]:
        """[B, N] ids and [B, N, 2] numbers of the next tokens, and how many there are of each sequence.

        Sequences that continue, without truncation, sample several where the body can do that; the tokens are the same.
        """
        own_B = self.all_kept_S[row_B] & (self.position_S[row_B] > 0)
        written = self._write(row_B[own_B]) if own_B.any() else None
        if written is None:
            token_B, numbers_B2 = self._on_host(*self._choose(row_B, self._read(row_B)))
            return token_B[:, None], numbers_B2[:, None], np.ones(len(row_B), np.int64)
        shape = len(row_B), written[0].shape[1]
        token_BN, numbers_BN2 = np.zeros(shape, np.int64), np.zeros((*shape, 2))
        count_B = np.where(own_B, shape[1], 1)
        token_BN[own_B], numbers_BN2[own_B] = self._on_host(*written)
        if not own_B.all():
            others_B = row_B[~own_B]
            chosen = self._choose(others_B, self._read(others_B))
            token_BN[~own_B, 0], numbers_BN2[~own_B, 0] = self._on_host(*chosen)
        return token_BN, numbers_BN2, count_B

    def _write(self, row_B: IntArray) -> tuple[Tensor, Tensor, Tensor] | None:
        """Several tokens per sequence, if the body can: at most what every limit allows, and one with stop strings."""
        most = int((self.limit_S[row_B] - self.position_S[row_B]).max())
        steps = 1 if self.watched or self.likeliest or self.matchers else min(self.ahead, most)
        last_B = torch.from_numpy(self.ids_SC[row_B, self.position_S[row_B] - 1])
        return self.body.write(self.cache, row_B.tolist(), last_B, self._drawing(row_B), steps)

    def _drawing(self, row_B: IntArray) -> Drawing:
        given = self.temperature_S[row_B], self.key_S[row_B], self.position_S[row_B].astype(np.uint64)
        temperature_B, key_B, counter_B = map(torch.from_numpy, given)
        return Drawing(temperature_B=temperature_B, key_B=key_B, counter_B=counter_B)

    def _read(self, row_B: IntArray) -> Tensor:
        """[B, D] the last hidden states of slots, after the last sampled token of each is appended."""
        going_B = row_B[self.position_S[row_B] > 0]
        if len(going_B):
            last_B = torch.from_numpy(self.ids_SC[going_B, self.position_S[going_B] - 1])  # the body sends them on
            packed = Packed(token_ids_L=last_B, starts=tuple(range(len(going_B) + 1)))
            if len(going_B) == len(row_B):  # no copy needed: these are read now, and the next step computes new ones
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

    def _choose(self, row_B: IntArray, hidden_BD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, log-probabilities and entropies of the next tokens."""

        def tensor(array_S: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array_S[row_B])

        rules = Rules(
            temperature_B=tensor(self.temperature_S),
            top_k_B=tensor(self.top_k_S),
            top_p_B=tensor(self.top_p_S),
            min_p_B=tensor(self.min_p_S),
        )
        drawing = self._drawing(row_B)
        logits_BV = self._among_allowed(row_B, self.body.next_logits(self.cache, hidden_BD))
        uniform_B = kernels.uniform(drawing.key_B, drawing.counter_B)
        token_B, logp_B, entropy_B = choose(logits_BV, rules, uniform_B)
        for place, slot in enumerate(row_B.tolist()) if self.matchers or self.likeliest else ():
            own, one = logits_BV[place : place + 1], torch.tensor([place])
            if slot in self.matchers.keys() - self.masked and (allowed_V := self._allowed(slot)) is not None:
                token_B[place], logp_B[place] = choose_allowed(own, rules.of(one), uniform_B[one], allowed_V)
            if slot in self.likeliest:
                temperature = float(rules.temperature_B[place])
                chosen = int(token_B[place]), float(logp_B[place])
                self.found[slot] = likeliest(own, temperature, self.likeliest[slot], chosen)
        return token_B, logp_B, entropy_B

    def _among_allowed(self, row_B: IntArray, logits_BV: Tensor) -> Tensor:
        """The logits with those of denied tokens at minus infinity, where log-probabilities are those of the others."""
        known = {place: self._allowed(slot) for place, slot in enumerate(row_B.tolist()) if slot in self.masked}
        masks = {place: allowed_V for place, allowed_V in known.items() if allowed_V is not None}
        if places := list(masks):
            allowed_PV = torch.from_numpy(np.stack(list(masks.values()))).to(logits_BV.device)
            lowest = torch.finfo(logits_BV.dtype).min  # an allowed token is there, however unlikely
            logits_BV[places] = logits_BV[places].clamp(min=lowest).where(allowed_PV, -torch.inf)
        return logits_BV

    def _allowed(self, slot: int) -> NDArray[np.bool_] | None:
        """The tokens that a sequence may continue with; None where that cannot be determined, which ends it."""
        try:
            return self.matchers[slot].allowed()
        except PosttrainError as error:
            self.failed[slot] = error
            return None

    def _push(self, row_B: IntArray) -> None:
        """Tell the matchers of sequences that go on what was sampled."""
        for slot in row_B.tolist():
            if slot in self.matchers and slot not in self.failed:
                self.matchers[slot].push(int(self.ids_SC[slot, self.position_S[slot] - 1]))

    def _heard(self, row_B: IntArray, count_B: IntArray) -> dict[int, Written]:
        """What the sequences that are listened to got in this step."""
        heard = {}
        for slot, count in zip(row_B.tolist(), count_B.tolist(), strict=True):
            if slot in self.listened and slot not in self.failed:
                last = slice(self.position_S[slot] - count, self.position_S[slot])
                ids, logp = self.ids_SC[slot, last].copy(), self.numbers_SC2[slot, last, 0].copy()
                likeliest_ids, likeliest_logp = self.found.get(slot, (None, None))
                heard[slot] = Written(
                    number=slot,
                    token_ids=ids,
                    logp=logp,
                    likeliest_ids=likeliest_ids,
                    likeliest_logp=likeliest_logp,
                )
        return heard

    def _on_host(self, token: Tensor, logp: Tensor, entropy: Tensor) -> tuple[IntArray, NDArray[np.float64]]:
        """The chosen tokens and their numbers [..., 2] on the host.

        Raises `RunFailed` where logits are not finite, `BrokenModel` where they were not before any update.
        """
        if token.device.type == "cpu":
            tokens, numbers = token.numpy(), np.stack((logp.numpy(), entropy.numpy()), -1)
        else:  # One copy to the host for all; float64 holds every token id exactly.
            given = torch.stack((token.to(torch.float64), logp, entropy), -1).cpu().numpy()
            tokens, numbers = given[..., 0], given[..., 1:]
        logps = numbers[..., 0]
        if np.isnan(logps).any() or (not self.matchers and not np.isfinite(logps).all()):
            raise self._diverged()
        return tokens.astype(np.int64), numbers

    def _diverged(self) -> RunFailed:
        """The error for logits that are not finite."""
        what = f"role {self.policy.role}: the model's logits are not finite (NaN or infinity)"
        if self.policy.version == 0:
            return BrokenModel(
                f"{what} before any update, so nothing can be sampled from it. Its weights are finite but too large, "
                f"or its config.json is not theirs: copy or download the folder of models.{self.policy.role} again."
            )
        return RunFailed(
            f"{what} after {self.policy.version} updates, so nothing can be sampled from it. Training has diverged: "
            "lower the learning rate."
        )

    def _watch(self, row_B: IntArray) -> dict[int, str]:
        """Texts, truncated at the match, of the sequences that have just completed a stop string."""
        texts = {}
        for slot in row_B.tolist() if self.watched else ():
            watched = self.watched.get(slot)
            text = watched.push(int(self.ids_SC[slot, self.position_S[slot] - 1])) if watched else None
            if text is not None:
                texts[slot] = text
        return texts

    def _finish(self, slot: int, text: str | None) -> Completion:
        """The completion of a slot, which becomes free; `text` is set if a stop string ended it."""
        ids = self.ids_SC[slot, : self.position_S[slot]].copy()
        ended = bool(self.ends_SV[slot, ids[-1]])
        stop_reason: StopReason = "length" if text is None and not ended else "stop"
        if text is None:
            text = self.policy.tokenizer.decode(ids[:-1] if ended else ids)
        logp, entropy = self.numbers_SC2[slot, : len(ids)].T.copy()
        if slot in self.prompts:
            self._keep(self.prompts[slot], ids, slot)
        goes_on = slot in self.cached and stop_reason == "length"
        cache = self.cache.take_out(slot, self.cached[slot] + len(ids) - 1) if goes_on else None
        self.release(slot)
        return Completion(
            token_ids=ids,
            logp=logp,
            entropy=entropy,
            stop_reason=stop_reason,
            version=self.version,
            text=text,
            cache=cache,
        )

    def _keep(self, prompt: IntArray, ids: IntArray, slot: int) -> None:
        """Keep the pages of a sequence for those that go on from it; the last token is in none."""
        assert isinstance(self.cache, KeyValueCache), "there is a stamp"
        self.cache.keep(slot, np.concatenate((prompt, ids[:-1])) if self.decodes_alike else prompt)
