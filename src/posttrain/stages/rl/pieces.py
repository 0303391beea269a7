"""Samplers that write completions in pieces, between which the weights may change.

A piece is keyed by its completion and the tokens before it, so that it is a function of weights, prompt and key,
whenever it is sampled. What a group was answered is kept until it ends: a continued run repeats its requests, is
answered the same without sampling, and goes on from there.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from posttrain.engines import Keeping, Sampler, Sampling
from posttrain.engines._stopping import StopStrings
from posttrain.errors import UserError
from posttrain.types import Array, Completion, FloatArray, Group, IntArray, Message, Score, Segment, StopReason, Task


@dataclass(eq=False, kw_only=True)
class Progress:
    """What one group in progress has been answered."""

    number: int
    """Of the group in its stage."""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name of the request; numbers, texts and arrays."""
    written: int = 0
    """Tokens of the longest piece since the last change of `Gate.open`."""

    @property
    def spans(self) -> list[list[int]]:
        """Steps whose weights drew tokens, each with the number of its tokens, in the order of steps."""
        counts: dict[int, int] = {}
        for answer in self.answers.values():
            if "completions" in answer:
                tokens = sum(len(completion["token_ids"]) for completion in answer["completions"])
                counts[answer["step"]] = counts.get(answer["step"], 0) + tokens
        return [[step, counts[step]] for step in sorted(counts)]


@dataclass(eq=False, kw_only=True)
class Waiting:
    """A piece that has not been sampled yet."""

    progress: Progress
    name: str
    future: "asyncio.Future[None] | None" = None


@dataclass(eq=False)
class Gate:
    """Holds pieces until they may be sampled."""

    step: int = 0
    """Steps that have been learned from: the weights of a piece."""
    waiting: list[Waiting] = field(default_factory=list)
    busy: int = 0
    """Requests and scores that are under way."""
    anew: int = 0
    """Rollouts that started anew, since their environments did not repeat what they had answered."""
    given_up: list[tuple[int, str]] = field(default_factory=list)
    """Of each, the number of its group, and the key that all requests before it began with."""
    flows: bool = False
    """Whether pieces pass as they are requested."""
    passed: list[Waiting] = field(default_factory=list)
    """Those that did."""

    async def wait(self, progress: Progress, name: str) -> None:
        """Return when the piece may be sampled; then it is under way."""
        if self.flows:
            self.busy += 1
            self.passed.append(Waiting(progress=progress, name=name))
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiting(progress=progress, name=name, future=future))
        await future

    def open(self, chosen: Callable[[Waiting], bool]) -> list[Waiting]:
        """Let these pieces pass, and return them, in an order that does not depend on when they were asked for."""
        ordered = sorted(self.waiting, key=lambda asked: (asked.progress.number, asked.name))
        passing = [asked for asked in ordered if chosen(asked)]
        self.waiting = [asked for asked in self.waiting if asked not in passing]
        for asked in passing:
            self.busy += 1
            if asked.future is not None:
                asked.future.set_result(None)
        return passing


class PiecedSampler:
    """A sampler of a group in progress; see `posttrain.engines.Sampler`."""

    def __init__(
        self,
        base: Sampler,
        role: str,
        progress: Progress,
        gate: Gate,
        piece: int | None,
        key: tuple[int | str, ...] = (),
        *,
        keeps: bool = False,
    ) -> None:
        """`piece` is the most tokens of a piece; None samples whole, as from a model that is not trained. `keeps`:
        whether a piece goes on with the keys and values of the one before.
        """
        self._keeps = keeps and piece is not None
        if self._keeps and not isinstance(base, Keeping):
            raise UserError(
                f"the model in the role '{role}' gives no keys and values of its text; take schedule.caches=renewed"
            )
        self._base, self._role, self._progress, self._gate = base, role, progress, gate
        self._piece, self._key = piece, key
        self._requested = self._asked = self._idled = 0

    @property
    def context(self) -> int:
        """Longest sequence that the model takes, in tokens."""
        return self._base.context

    def prompt(self, task: Task) -> Segment:
        """A task's prompt as the model takes it."""
        return self._base.prompt(task)

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """Token ids of a prompt."""
        return self._base.encode(prompt)

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Token ids of a completion as the model should write it."""
        return self._base.encode_completion(prompt, text)

    def decode(self, token_ids: IntArray) -> str:
        """Text of token ids."""
        return self._base.decode(token_ids)

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Token ids of a reply to the model's turn."""
        return self._base.encode_reply(prompt, turn, reply)

    def bind(self, *key: int | str) -> "PiecedSampler":
        """A sampler with an extended key."""
        whole = (*self._key, *key)
        base, gate = self._base.bind(*key), self._gate
        return PiecedSampler(base, self._role, self._progress, gate, self._piece, whole, keeps=self._keeps)

    def uniform(self) -> float:
        """The next random number in [0, 1)."""
        return self._base.uniform()

    def recall(self) -> list[Any]:
        """What an environment answered under this key, to be added to; it is kept until the group ends."""
        empty: dict[str, Any] = {"step": self._gate.step, "seen": []}
        kept: list[Any] = self._progress.answers.setdefault(f"{self._name()} seen", empty)["seen"]
        return kept

    def forget(self) -> None:
        """Drop all answers under this key and those that extend it, of any model."""
        key, answers = f"{_spelt(self._key)} " if self._key else "", self._progress.answers
        for name in [name for name in answers if name.partition(" ")[2].startswith(key)]:
            del answers[name]
        self._gate.anew += 1
        self._gate.given_up.append((self._progress.number, key))

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Write `n` completions of a prompt, in pieces."""
        first, self._requested = self._requested, self._requested + n
        if not n:
            return await self._base.sample(token_ids, n, sampling, vectors)
        most = int(sampling.max_tokens)
        length = min(self._piece or most, most)
        begun = await self._written(first, 0, token_ids, n, replace(sampling, max_tokens=length), vectors)
        rest = [self._whole((first, n), i, c, token_ids, sampling, length, vectors) for i, c in enumerate(begun)]
        return list(await asyncio.gather(*rest))

    async def idle(self, tokens: float) -> None:
        """Let as many pieces of others pass as the tokens take: a cost that is stated, not sampled."""
        for place in range(math.ceil(tokens / self._piece) if self._piece else 0):
            name, answers = f"{self._name()} idle {self._idled}", self._progress.answers
            self._idled += 1
            if name not in answers:
                await self._gate.wait(self._progress, name)
                self._gate.busy -= 1
                answers[name] = {"step": self._gate.step, "value": None}
                left = tokens - place * (self._piece or 0)
                self._progress.written = max(self._progress.written, min(self._piece or 0, math.ceil(left)))

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions."""
        if self._piece is not None:
            return [completion.text for completion in await self.sample(self.encode(prompt), n, sampling)]
        texts: list[str] = await self._answered(lambda: self._base.write(prompt, n, sampling))
        return texts

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """[L-1] log-probability of each token after the first."""
        found: FloatArray = await self._answered(
            lambda: self._base.logp(token_ids, temperature=temperature, vectors=vectors)
        )
        return found

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """The output of a head for the sequence."""
        found: float = await self._answered(lambda: self._base.score(token_ids, vectors=vectors))
        return found

    async def scores(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> FloatArray:
        """[O] all outputs of a reward head for the sequence."""
        found: FloatArray = await self._answered(lambda: self._base.scores(token_ids, vectors=vectors))
        return found

    async def _answered(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a request that is not in pieces; the one that is kept, if there is one."""
        name, answers = f"{self._name()} asked {self._asked}", self._progress.answers
        self._asked += 1
        if name not in answers:
            self._gate.busy += 1
            try:
                answers[name] = {"step": self._gate.step, "value": await ask()}
            finally:
                self._gate.busy -= 1
        return answers[name]["value"]

    async def _written(
        self,
        number: int,
        begun: int,
        token_ids: IntArray,
        n: int,
        sampling: Sampling,
        vectors: FloatArray | None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """Pieces of `n` completions from the `number`-th on, which have `begun` tokens."""
        name, answers = self._piece_name(number, n, begun), self._progress.answers
        if name in answers:
            return [Completion(**completion) for completion in answers[name]["completions"]]
        if self._piece is not None:
            await self._gate.wait(self._progress, name)
        else:
            self._gate.busy += 1
        try:
            writer = self._base.bind("piece", number, begun) if number or begun else self._base.bind()
            if self._keeps and isinstance(writer, Keeping):
                found = await writer.go_on(token_ids, n, sampling, vectors, stored)
            else:
                found = await writer.sample(token_ids, n, sampling, vectors)
        finally:
            self._gate.busy -= 1
        packed = [{f.name: getattr(c, f.name) for f in fields(Completion)} for c in found]
        answers[name] = {"step": self._gate.step, "completions": packed}
        self._progress.written = max(self._progress.written, *(len(c.token_ids) for c in found))
        return found

    async def _whole(
        self,
        asked: tuple[int, int],
        place: int,
        begun: Completion,
        prompt: IntArray,
        sampling: Sampling,
        length: int,
        vectors: FloatArray | None,
    ) -> Completion:
        """The completion that begins with a piece, which was given `length` tokens: one of those that were `asked` for,
        the first and how many.
        """
        number = asked[0] + place
        most, parts, last = int(sampling.max_tokens), [begun], begun
        piece = self._piece_name(*asked, 0)
        stops = StopStrings(sampling.stop, lambda ids: self.decode(np.array(ids, np.int64))) if sampling.stop else None
        text = _match(stops, last)[1]
        while last.stop_reason == "length" and text is None and last.vectors is None:
            written = sum(len(part.token_ids) for part in parts)
            room = min(most - written, self.context - len(prompt) - written)
            if len(last.token_ids) < length or room <= 0:
                break
            length = min(self._piece or most, room)
            so_far = np.concatenate([prompt, *(part.token_ids for part in parts)])
            own = replace(sampling, max_tokens=length)
            (last,) = await self._written(number, written, so_far, 1, own, vectors, last.cache)
            self._forget(piece, place)
            piece, place = self._piece_name(number, 1, written), 0
            count, text = _match(stops, last)
            last = _cut(last, count)
            parts.append(last)
        self._forget(piece, place)
        return replace(begun, cache=None) if len(parts) == 1 else self._joined(parts, text)

    def _forget(self, piece: str, place: int) -> None:
        """Drop the keys and values of a completion in a piece: it has ended, or another one has them."""
        if self._keeps:
            self._progress.answers[piece]["completions"][place]["cache"] = None

    def _piece_name(self, number: int, n: int, begun: int) -> str:
        return f"{self._name()} {number}+{n} at {begun}"

    def _joined(self, parts: Sequence[Completion], text: str | None) -> Completion:
        """One completion of several pieces; `text` is set if a stop string ended it."""
        ids = np.concatenate([part.token_ids for part in parts])
        reason: StopReason = "stop" if text is not None else parts[-1].stop_reason
        if text is None:
            text = self.decode(ids[:-1] if reason == "stop" else ids)
        entropies = [part.entropy for part in parts if part.entropy is not None]
        return Completion(
            token_ids=ids,
            logp=np.concatenate([part.logp for part in parts]),
            entropy=np.concatenate(entropies) if len(entropies) == len(parts) else None,
            stop_reason=reason,
            version=parts[0].version,
            text=text,
        )

    def _name(self) -> str:
        return _spelt((self._role, *self._key))


def _spelt(key: Sequence[int | str]) -> str:
    return " ".join(map(repr, key))


def _match(stops: StopStrings | None, piece: Completion) -> tuple[int, str | None]:
    """Tokens of a piece up to a stop string that it completes, and the text of the whole before it."""
    for count, token in enumerate(piece.token_ids.tolist() if stops is not None else ()):
        text = stops.push(token) if stops is not None else None
        if text is not None:
            return count + 1, text
    return len(piece.token_ids), None


def _cut(piece: Completion, count: int) -> Completion:
    """The first tokens of a piece."""
    if count == len(piece.token_ids):
        return piece
    entropy = None if piece.entropy is None else piece.entropy[:count]
    return replace(piece, token_ids=piece.token_ids[:count], logp=piece.logp[:count], entropy=entropy)


async def scored_once(
    group: Group, progress: Progress, gate: Gate, score: Callable[[Group], Awaitable[Group]]
) -> Group:
    """The group with scores; those that are kept, if they are."""
    digest = hashlib.blake2b(group.key.encode(), digest_size=8)
    for trajectory in group:
        digest.update(f"{trajectory.sample} {len(trajectory.token_ids)} ".encode() + trajectory.token_ids.tobytes())
    name, answers = f"score {digest.hexdigest()}", progress.answers
    if name in answers:
        kept = answers[name]["scores"]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, kept, strict=True)))
    gate.busy += 1
    try:
        found = await score(group)
    finally:
        gate.busy -= 1
    answers[name] = {"step": gate.step, "scores": [trajectory.score for trajectory in found]}
    return found


def plain_answers(progress: Progress) -> dict[str, Any]:
    """The answers for a checkpoint: scores as JSON."""
    from pydantic import TypeAdapter

    scores = TypeAdapter(list[Score | None])

    def plain(answer: dict[str, Any]) -> dict[str, Any]:
        if "scores" in answer:
            return {**answer, "scores": scores.dump_python(answer["scores"], mode="json")}
        return {**answer, "seen": list(answer["seen"])} if "seen" in answer else answer

    return {name: plain(answer) for name, answer in progress.answers.items()}


def read_answers(packed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What `plain_answers` was made from."""
    from pydantic import TypeAdapter

    scores = TypeAdapter(list[Score | None])
    return {
        name: {**answer, "scores": scores.validate_python(answer["scores"])} if "scores" in answer else dict(answer)
        for name, answer in packed.items()
    }


def without_given_up(journal: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The journal without pieces of rollouts that started anew in a later step: no answer to them is learned from."""
    found, later = dict[int, Mapping[str, Any]](), list[tuple[int, str]]()
    for step in sorted(journal, reverse=True):
        entry = journal[step]
        kept = [
            piece
            for piece in entry["pieces"]
            if not any(piece[0] == number and piece[1].partition(" ")[2].startswith(key) for number, key in later)
        ]
        found[step] = {**entry, "pieces": kept}
        later += [(number, key) for number, key in entry.get("anew", ())]
    return found
