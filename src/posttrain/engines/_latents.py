"""The server of models with latent steps: draws the steps of pending requests together, then lets text follow.

Every random number is a function of the completion's key and of its place. The steps of a completion end where the
likeliest token is the mark; after the most steps the mark is put there all the same. The answer goes on from the steps
as any text does.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from posttrain.datasets.latents import CLOSING, STEP
from posttrain.engines import Counters, Sampling, Watch
from posttrain.engines._chains import normals
from posttrain.engines._continuous import ContinuousServer
from posttrain.engines._passes import Piece, pack, passes
from posttrain.engines._random import key_of
from posttrain.errors import UserError
from posttrain.policies._attention import pad_rows
from posttrain.policies.latent_steps import mean_density
from posttrain.types import Array, Completion, FloatArray, IntArray

if TYPE_CHECKING:
    from posttrain.policies.latent_steps import LatentPolicy


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A request for steps, and the future of its completions, which have no answers yet."""

    prompt: Piece
    keys: Sequence[int]
    temperature: float
    most: int
    """Most steps."""
    future: "asyncio.Future[list[Completion]]"


class LatentServer(ContinuousServer):
    """A model with latent steps that is served; see `posttrain.engines.Server`."""

    def __init__(self, policy: "LatentPolicy", seed: int, *, slots: int, prefill_tokens: int) -> None:
        super().__init__(policy, seed, slots=slots, prefill_tokens=prefill_tokens)
        self._asked: list[_Pending] = []

    @property
    def _model(self) -> "LatentPolicy":
        return cast("LatentPolicy", self.policy)

    async def complete(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        watch: Watch | None = None,
    ) -> list[Completion]:
        """Steps and an answer for each key. The limit of tokens counts both."""
        request = self._request(token_ids, vectors, sampling, watch or Watch())
        if not keys:
            return []
        loop = asyncio.get_running_loop()
        self._asked = [one for one in self._asked if one.future.get_loop() is loop]
        if not self._asked:
            loop.call_soon(self._draw_all)
        pending = _Pending(
            prompt=request.prompt,
            keys=keys,
            temperature=sampling.temperature,
            most=max(1, min(self._model.settings.steps, request.max_tokens - 2)),
            future=loop.create_future(),
        )
        self._asked.append(pending)
        begun = await pending.future
        answers = (
            self._answer(request.prompt, one, key, sampling, request.max_tokens, watch)
            for one, key in zip(begun, keys, strict=True)
        )
        return list(await asyncio.gather(*answers))

    async def go_on(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """Raises `UserError`."""
        raise UserError("a model with latent steps is sampled whole; take schedule.caches=renewed")

    async def _answer(
        self, prompt: Piece, begun: Completion, key: int, sampling: Sampling, most: int, watch: Watch | None
    ) -> Completion:
        """The steps with the text that follows them."""
        assert begun.vectors is not None and begun.entropy is not None, "they are steps"
        given = np.zeros((len(prompt), begun.vectors.shape[1]), np.float32)
        left = replace(sampling, max_tokens=max(1, most - len(begun.token_ids)))
        ids = np.concatenate([prompt.token_ids, begun.token_ids])
        [answer] = await super().complete(ids, [key], left, np.concatenate([given, begun.vectors]), watch)
        empty = np.zeros((len(answer.token_ids), begun.vectors.shape[1]), np.float32)
        entropy = np.zeros(len(answer.token_ids), np.float32) if answer.entropy is None else answer.entropy
        return replace(
            answer,
            token_ids=np.concatenate([begun.token_ids, answer.token_ids]),
            logp=np.concatenate([begun.logp, answer.logp]),
            entropy=np.concatenate([begun.entropy, entropy]),
            vectors=np.concatenate([begun.vectors, empty]),
        )

    def _draw_all(self) -> None:
        """Draw the steps of all pending requests."""
        asked, self._asked = self._asked, []
        try:
            lanes = [(one, key) for one in asked for key in one.keys]
            parts = (lanes[start : start + self._slots] for start in range(0, len(lanes), self._slots))
            made = [done for part in parts for done in self._draw(part)]
            for one in asked:
                own, made = made[: len(one.keys)], made[len(one.keys) :]
                if not one.future.done():
                    one.future.set_result(own)
        except Exception as error:
            for one in asked:
                if not one.future.done():
                    one.future.set_exception(error)

    @torch.no_grad()
    def _draw(self, lanes: Sequence[tuple[_Pending, int]]) -> list[Completion]:
        """The steps of at most as many completions as there are slots, each with its mark."""
        model, body = self._model, self.policy.body
        device = next(model.parameters()).device
        cache = body.new_cache(len(lanes), body.context)
        hidden: dict[int, Tensor] = {}
        for batch in passes([(slot, one.prompt) for slot, (one, _) in enumerate(lanes)], self._prefill_tokens):
            slots = [slot for slot, _ in batch]
            states_BD = body.extend(cache, slots, pack([piece for _, piece in batch], device))
            hidden |= dict(zip(slots, states_BD, strict=True))
        hidden_BD, written = torch.stack([hidden[b] for b in range(len(lanes))]), [_Steps() for _ in lanes]
        left = list(range(len(lanes)))
        for place in range(max(one.most for one, _ in lanes)):
            left = self._step(lanes, left, hidden_BD, written, place)
            if not left:
                break
            pieces = [Piece(np.array([written[b].ids[-1]]), written[b].vectors[-1][None]) for b in left]
            hidden_BD[left] = body.extend(cache, left, pack(pieces, device))
        cache.close()
        tokens = sum(len(own.ids) + 1 for own in written)  # the mark is one of the completion's
        self.counters += Counters(prompt_tokens=sum(len(one.prompt) for one, _ in lanes), sampled_tokens=tokens)
        return [own.completion(model.mark, 1 + body.width, model.version) for own in written]

    def _step(
        self,
        lanes: Sequence[tuple[_Pending, int]],
        left: Sequence[int],
        hidden_BD: Tensor,
        written: "Sequence[_Steps]",
        place: int,
    ) -> list[int]:
        """Draw a step of each that goes on, which are returned."""
        model, rows = self._model, hidden_BD[list(left)]
        likeliest = self.policy.body.logits(rows).argmax(-1).tolist()
        on = [i for i, b in enumerate(left) if likeliest[i] != model.mark and place < lanes[b][0].most]
        if not on:
            return []
        mean_BD, log_std_BD = (x[: len(on)].float() for x in model.step_head(pad_rows(rows[on])))
        own = [lanes[left[i]] for i in on]
        heat_B1 = torch.tensor([[one.temperature] for one, _ in own])
        noise_BD = torch.from_numpy(normals([key_of(key, "latent", place) for _, key in own], mean_BD.shape[1]))
        drawn_BD = mean_BD + log_std_BD.exp() * (heat_B1 * noise_BD).to(mean_BD)
        for row, (i, (one, _)) in enumerate(zip(on, own, strict=True)):
            part = slice(row, row + 1)
            logp, entropy = mean_density(drawn_BD[part], mean_BD[part], log_std_BD[part], one.temperature or 1.0)
            vector = np.concatenate([[STEP], drawn_BD[row].cpu().numpy()]).astype(np.float32)
            written[left[i]].add(likeliest[i], vector, float(logp[0]), float(entropy[0]))
        return [left[i] for i in on]


class _Steps:
    """What was drawn for one completion."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.vectors: list[FloatArray] = []
        self.logp: list[float] = []
        self.entropy: list[float] = []

    def add(self, token_id: int, vector: FloatArray, logp: float, entropy: float) -> None:
        """Append a step."""
        self.ids.append(token_id)
        self.vectors.append(vector)
        self.logp.append(logp)
        self.entropy.append(entropy)

    def completion(self, mark: int, width: int, version: int) -> Completion:
        """The steps and the mark."""
        vectors = np.zeros((len(self.ids) + 1, width), np.float32)
        vectors[: len(self.ids)] = self.vectors or np.zeros((0, width), np.float32)
        vectors[-1, 0] = CLOSING
        return Completion(
            token_ids=np.array([*self.ids, mark], np.int64),
            logp=np.array([*self.logp, 0.0], np.float32),
            entropy=np.array([*self.entropy, 0.0], np.float32),
            vectors=vectors,
            stop_reason="stop",
            version=version,
            text="",
        )
