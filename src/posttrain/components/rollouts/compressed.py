r"""Correct rollouts once more with a part of their thoughts cut out: the steps that their end attends to least.

Source: TRAAC, arXiv:2510.01581, and its release (joykirat18/TRAAC at 0bfea0a7). With the share d of a task's rollouts
that are correct, a task is easy (d >= 0.8), medium (d >= 0.3) or hard. Of each correct rollout whose thoughts are in
one pair of tags:

    1. The text up to the end of the thoughts, a request to summarize and the closing tag are read by a model. The
       attention of the last token to each is averaged over all heads of the first half of the layers.
    2. The thoughts are split where a cue word begins ("Wait", "Alternatively", ...). The score of a step is the mean
       attention to its tokens.
    3. U = entropy(scores / sum) / ln(steps). Above 0.8 nothing is cut; else the int(f steps) steps of the lowest
       scores, f = min(T (1 - U), 0.8) with T = 0.6, 0.4 or 0.2 for easy, medium and hard tasks. U is 1 with one step,
       or without any attention.
    4. What follows the thoughts that are left, the closing tag included, is sampled anew.

The rollouts and the compressed ones are shuffled, and the first `n` are the group: rollouts may be lost. All tokens of
a compressed one are trained, at a ratio of 1 before the first update: what is left of the thoughts was not sampled in
this form (actor ``demonstration``, so that it does not count for the metrics of the model's own rollouts).

The release reads the attention of a model that is not trained (`attention_role=reference`); `policy` is the other
reading.

Differs: the cue words are ours, with a blank line and a semicolon among them, since the list of 32 is not in the
paper. Where nothing fits after the thoughts that are left, there is no compressed rollout.
"""

import asyncio
import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Difficulty, Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.datasets.spans import Range, tagged_ranges
from posttrain.engines import Attending, Sampler, Sampling
from posttrain.errors import UserError
from posttrain.grading.tags import TagName, opened_by_prompt
from posttrain.types import Fact, Group, IntArray, Message, Segment, Task, Trajectory

CUES = (
    *("Wait", "Alternatively", "Hmm", "So", "But", "However", "Therefore", "Thus", "Now", "Next", "First", "Then"),
    *("Let me", "Let's", "Okay", "Actually", "Maybe", "Perhaps", "Another", "Since", "Because", "Finally", "check"),
    *("\n\n", ";"),
)
Reals = NDArray[np.floating[Any]]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Cue = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Compression(Fact):
    """What was cut out of a rollout."""

    steps: int
    """Of the thoughts before."""
    evicted: int
    """Steps that were cut."""
    uniformity: float
    """U, in [0, 1]."""
    compressed_from: int
    """Number of the rollout in its group."""


@frozen
class Eviction:
    """How many steps are cut, by the difficulty of the task."""

    least: tuple[Share, Share] = (0.8, 0.3)
    """Least share of correct rollouts of an easy and of a medium task."""
    rates: tuple[Share, Share, Share] = (0.6, 0.4, 0.2)
    """T of easy, medium and hard tasks."""
    uniform: Share = 0.8
    """U above which nothing is cut."""
    most: Share = 0.8
    """Largest share of the steps that is cut."""

    @model_validator(mode="after")
    def check_least(self) -> Self:
        """Refuse classes in the wrong order."""
        if self.least[0] < self.least[1]:
            context = {"easy": self.least[0], "medium": self.least[1]}
            text = "an easy task needs a share of {easy}, less than {medium} for a medium one"
            raise PydanticCustomError("least", text, context)
        return self

    def cut(self, scores: Reals | Sequence[float], difficulty: str) -> frozenset[int]:
        """The steps that are cut: those of the lowest scores, of equal ones the first."""
        u, rate = uniformity(scores), self.rates[("easy", "medium", "hard").index(difficulty)]
        if u > self.uniform:
            return frozenset()
        count = int(min(rate * (1.0 - u), self.most) * len(scores))
        return frozenset(np.argsort(np.asarray(scores, np.float64), kind="stable")[:count].tolist())


@frozen
class Compressed(Rollout):
    """Samples `n` completions, and mixes them with compressed forms of the correct ones."""

    n: PositiveInt = 8
    """Completions of a task, and rollouts of the group that is learned from."""
    sampling: Sampling = Sampling()
    """How completions, and ends of compressed ones, are sampled."""
    attention_role: str = "reference"
    """The model whose attention is read; it has the policy's tokens."""
    tag: TagName = "think"
    """Tag of the thoughts."""
    request: str = "\nTime is up. I should summarize the key steps of my thoughts now.\n"
    """What the thoughts end with when attention is read."""
    cues: Annotated[tuple[Cue, ...], Field(min_length=1)] = CUES
    """Where a step begins: words, or other texts."""
    layers: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of the layers, from the first, whose attention is read."""
    eviction: Eviction = Eviction()
    """Which steps are cut."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The model whose attention is read."""
        return frozenset({self.attention_role}) - {"policy"}

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group of `n` rollouts and compressed ones."""
        sampler, reader = sampler_of("policy", samplers), self._reader(samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        own = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, "policy")))
        scored = [t for t in own if t.score is not None and t.score.status != "error"]
        if not scored:
            return [own]
        fact = Difficulty.of(sum(t.solved for t in scored), len(scored), self.eviction.least)
        tried = await asyncio.gather(*(self._compressed(t, fact, sampler, reader) for t in scored if t.solved))
        made = tuple(t for t in tried if t is not None)
        known = tuple(replace(t, facts=(*t.facts, fact)) for t in own)
        if not made:
            return [replace(own, trajectories=known)]
        pool = (*known, *await scorer(Group(key=task.key, trajectories=made)))
        draws = [sampler.uniform() for _ in pool]
        first = sorted(range(len(pool)), key=draws.__getitem__)[: self.n]
        return [replace(own, trajectories=tuple(pool[i] for i in first))]

    def _reader(self, samplers: Mapping[str, Sampler]) -> Attending:
        """The sampler whose attention is read. Raises `UserError` for one that does not show it."""
        reader = sampler_of(self.attention_role, samplers)
        if not isinstance(reader, Attending) or not reader.attends:
            raise UserError(
                f"rollout.attention_role: the attention of the role '{self.attention_role}' is to be read, which only "
                "models show that run natively in this process, not endpoints and bodies of transformers; name a role "
                "with such a model"
            )
        return reader

    async def _compressed(
        self, rollout: Trajectory, fact: Difficulty, sampler: Sampler, reader: Attending
    ) -> Trajectory | None:
        """The compressed form of a correct rollout, without a score; None for one of another form."""
        prompt, written = rollout.segments
        pieces = [reader.token_bytes(int(i)) for i in written.token_ids]
        opened = bool(opened_by_prompt(rollout, (self.tag,)))
        parts = tagged_ranges(pieces, self.tag, opened=opened)
        if len(parts) != 1:
            return None
        [(begin, end)] = parts
        steps = split(pieces, begin, end, self.cues)
        closing = sampler.encode_reply("", written.token_ids, Message(role="user", content=self._closing))
        read = np.concatenate([prompt.token_ids, written.token_ids[:end], closing])
        if len(read) > reader.context:
            return None
        attention_L = await reader.attention(read, share=self.layers, vectors=prompt.vectors)
        attention_T = attention_L[len(prompt) : len(prompt) + end]
        scores = np.array([attention_T[a:b].mean() for a, b in steps], np.float64)
        cut = self.eviction.cut(scores, fact.difficulty)
        left = [ids for i, (a, b) in enumerate(steps) if i not in cut for ids in written.token_ids[a:b].tolist()]
        kept = np.array([*written.token_ids[:begin].tolist(), *left], np.int64)
        room = min(self.sampling.max_tokens, sampler.context - len(prompt)) - len(kept)
        if room < 1 or not len(kept):
            return None
        again = np.concatenate([prompt.token_ids, kept])
        sampling = replace(self.sampling, max_tokens=room)
        bound = sampler.bind("compressed", rollout.sample)
        [completion] = await bound.sample(again, 1, sampling, prompt.vectors)
        facts = (
            fact,
            Compression(
                steps=len(steps),
                evicted=len(cut),
                uniformity=uniformity(scores),
                compressed_from=rollout.sample,
            ),
        )
        return Trajectory(
            task=rollout.task,
            segments=(prompt, self._thoughts(kept, sampler, completion.version), sampled_segment(completion, "policy")),
            stop_reason=completion.stop_reason,
            sample=self.n + rollout.sample,
            facts=facts,
        )

    @property
    def _closing(self) -> str:
        return f"{self.request}</{self.tag}>"

    def _thoughts(self, token_ids: IntArray, sampler: Sampler, version: int) -> Segment:
        """What is left of the thoughts."""
        text = sampler.decode(token_ids)
        return Segment(actor="demonstration", token_ids=token_ids, trained=True, version=version, text=text)


def split(pieces: Sequence[bytes], begin: int, end: int, cues: Sequence[str]) -> list[Range]:
    """First token and the one after the last of each step between two tokens, given the bytes of all tokens.

    A token belongs to the step in which it begins; a step without any is left out. Cues of letters are whole words.
    """
    text = b"".join(pieces[begin:end])
    marks = re.compile(b"|".join(_mark(cue) for cue in sorted(cues, key=len, reverse=True)))
    starts = [0, *(match.start() for match in marks.finditer(text) if match.start())]
    places = np.cumsum([0, *map(len, pieces[begin:end])])[:-1].tolist()
    step_of = [bisect_right(starts, place) - 1 for place in places]
    firsts = [i for i, step in enumerate(step_of) if i == 0 or step != step_of[i - 1]]
    return [(begin + a, begin + b) for a, b in zip(firsts, [*firsts[1:], end - begin], strict=True)]


def _mark(cue: str) -> bytes:
    word = re.escape(cue.encode())
    left, right = (rb"\b" if cue[place].isalnum() else b"" for place in (0, -1))
    return left + word + right


def uniformity(scores: Reals | Sequence[float]) -> float:
    """U of the scores of steps, in [0, 1]; 1 where there is nothing to choose by."""
    given = np.asarray(scores, np.float64)
    total = float(given.sum())
    if len(given) < 2 or not math.isfinite(total) or total <= 0:
        return 1.0
    share = given[given > 0] / total
    return float(min(1.0, max(0.0, -(share * np.log(share)).sum() / math.log(len(given)))))
