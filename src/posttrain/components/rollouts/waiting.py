"""Budget forcing: where a model would end its thoughts, a word such as "Wait" is put in their place, some times.

Source: "J1: Simple Test-Time Scaling for LLM-as-a-Judge", arXiv:2505.11875, by its model card, after s1,
arXiv:2501.19393: the closing tag of the thoughts, or the end of the completion before it, is replaced by the wait
string `waits` times; after that it is accepted, and the answer follows. `sampling.max_tokens` is a hard budget of
thoughts in all: where it is spent, the closing tag is forced, whatever waits are left. Waiting text is context, never
trained on. With ``waits: 0`` this is plain decoding.

Differs: the wait string and the numbers of waits are not published. A token that holds both the end of a thought and
the start of the tag is replaced whole.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.component.automatic import Count
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Fact, Group, IntArray, Segment, StopReason, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Forcing(Fact):
    """What was forced in a rollout."""

    waits: int
    """Ends of thoughts that were replaced."""
    closed: bool
    """Whether the closing tag was forced, at the end of the budget."""


@frozen
class Waiting(Rollout):
    """Samples `n` completions whose thoughts go on."""

    n: PositiveInt = 8
    """Completions per task."""
    waits: Annotated[int, Field(ge=0, le=64)] = 1
    """How often the end of the thoughts is replaced."""
    wait: Annotated[str, Field(min_length=1)] = "\nWait, "
    """What stands in its place."""
    close: Annotated[str, Field(min_length=1)] = "</think>"
    """The end of the thoughts."""
    answer_tokens: Count = 64
    """Most tokens after the thoughts."""
    sampling: Sampling = Sampling()
    """How thoughts and answer are sampled; `max_tokens` is the budget of the thoughts, those before a wait included."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def group_size(self) -> int:
        """`n`."""
        return self.n

    def held_out(self, n: int, sampling: Sampling) -> "Waiting":
        """The same waits, and the limits of this rollout."""
        return replace(self, n=n, sampling=replace(sampling, max_tokens=self.sampling.max_tokens))

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` rollouts."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        if not self.waits:
            whole = replace(self.sampling, max_tokens=int(self.sampling.max_tokens) + int(self.answer_tokens))
            completions = await sampler.sample(prompt.token_ids, self.n, whole, prompt.vectors)
            return [Group(key=task.key, trajectories=answers(task, prompt, completions, self.role))]
        one = (self._one(task, prompt, sampler.bind("forced", i), i) for i in range(self.n))
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*one)))]

    async def _one(self, task: Task, prompt: Segment, sampler: Sampler, sample: int) -> Trajectory:
        text = _Text(prompt, sampler, self.role)
        budget, waits, closed = int(self.sampling.max_tokens), 0, False
        reason: StopReason = "length"
        while True:
            thinking = replace(self.sampling, max_tokens=budget, stop=(*self.sampling.stop, self.close))
            thought = await text.sample(thinking)
            if thought is None:
                break
            budget -= len(thought.token_ids)
            reason, ended = thought.stop_reason, self.close in sampler.decode(thought.token_ids)
            if reason != "stop" or budget <= 0:
                # The budget is spent; a thought that ended with its last token has its tag.
                text.add(thought)
                if not ended:
                    closed = True
                    text.force(self.close)
                reason = await self._answer(text)
                break
            if waits == self.waits:
                text.add(thought)
                reason = await self._answer(text) if ended else "stop"
                break
            text.add(thought, kept=_before_the_end(thought, sampler, ended=ended))
            text.force(self.wait)
            waits += 1
        facts = (Forcing(waits=waits, closed=closed),)
        return Trajectory(task=task, segments=tuple(text.segments), stop_reason=reason, sample=sample, facts=facts)

    async def _answer(self, text: "_Text") -> StopReason:
        """Sample what follows the thoughts."""
        answer = await text.sample(replace(self.sampling, max_tokens=self.answer_tokens))
        if answer is None:
            return "length"
        text.add(answer)
        return answer.stop_reason


def _before_the_end(thought: Completion, sampler: Sampler, *, ended: bool) -> int:
    """Number of tokens before the closing tag, or before the end token where there is no tag."""
    if not ended:
        return len(thought.token_ids) - 1
    kept = len(thought.token_ids)
    while kept and len(sampler.decode(thought.token_ids[:kept])) > len(thought.text):
        kept -= 1
    return kept


@dataclass(slots=True)
class _Text:
    """A rollout as it grows."""

    prompt: Segment
    sampler: Sampler
    role: str
    segments: list[Segment] = field(init=False)
    turn: int = 0

    def __post_init__(self) -> None:
        self.segments = [self.prompt]

    @property
    def token_ids(self) -> IntArray:
        return np.concatenate([segment.token_ids for segment in self.segments]).astype(np.int64)

    async def sample(self, sampling: Sampling) -> Completion | None:
        """The next completion; None where the context has no room for a token."""
        token_ids = self.token_ids
        if len(token_ids) >= self.sampler.context:
            return None
        [completion] = await self.sampler.sample(token_ids, 1, sampling, self.prompt.vectors)
        return completion

    def add(self, completion: Completion, kept: int | None = None) -> None:
        """Append a completion, or its first tokens; its text is that of these tokens."""
        kept = len(completion.token_ids) if kept is None else kept
        if not kept:
            return
        part = replace(
            completion,
            token_ids=completion.token_ids[:kept],
            logp=completion.logp[:kept],
            entropy=None if completion.entropy is None else completion.entropy[:kept],
            text=self.sampler.decode(completion.token_ids[:kept]),
        )
        self.segments.append(sampled_segment(part, self.role, turn=self.turn))

    def force(self, text: str) -> None:
        """Append text that is not sampled."""
        self.turn += 1
        token_ids = self.sampler.encode(text)
        start = len(self.sampler.encode(""))  # a start token, of models that have one
        self.segments.append(Segment(actor="environment", token_ids=token_ids[start:], turn=self.turn, text=text))
