"""TreePO: completions are sampled as a tree of segments, so that common prefixes are sampled once.

Source: Li et al. 2025 (TreePO), arXiv:2508.17445, and the released run: segments of 512 tokens, 16 leaves, at most 14
segments deep, uniform branching. After each segment a path has ended (stop token, limit of tokens or depth,
repetition) or is open. With A open paths, F ended ones and f of these in the last round, the number of next segments is
max(A, min(n - F, width A + width f)), split evenly among open paths, the remainder to the last one. When no path is
open and leaves are missing, paths that ended by a stop token are taken in a random order. Each is cut at a random
segment end (or at the prompt) and continued from there `width` times. Without such a path, sampling restarts at the
prompt.

A leaf is a trajectory whose trained segments are the nodes above it; leaves share the `Segment` objects of their common
nodes. The `state_key` of a segment is the name of the node that it follows, so that rollouts with a common key have the
same prefix up to there.

A sampler's n-th completion depends on n alone, so the order of requests must not depend on the order of replies. The
tree grows in rounds, by one segment everywhere; the requests of a round are made in the order of the paths and awaited
together. Random choices are a function of the sampled tokens.

Differs: the paper also describes branching by likelihood, which its trained run does not use; it is not implemented.
Stop strings are refused, since one that spans two segments would not be found.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Fact, Group, IntArray, Segment, Task, Trajectory

REPLACEMENT = "\ufffd"
"""Stands for a character some of whose bytes are missing."""


Ending = Literal["", "stop", "length", "repetition"]
"""Why a path ended; empty for an open one."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """The path from the prompt to the end of a segment."""

    way: tuple[int, ...] = ()
    """Index of the child that was taken at each node."""
    segments: tuple[Segment, ...]
    """The prompt, then the sampled segments."""
    ended: Ending = ""

    @property
    def node(self) -> str:
        """Name of the node at the end: ``/1/0`` is the first child of the prompt's second child."""
        return "/" + "/".join(map(str, self.way))

    @property
    def written_ids(self) -> IntArray:
        """Token ids after the prompt."""
        return np.concatenate([np.zeros(0, np.int64), *(s.token_ids for s in self.segments[1:])])

    def cut(self, depth: int) -> "Path":
        """Its first `depth` segments, as an open path."""
        return Path(way=self.way[:depth], segments=self.segments[: depth + 1])


@dataclass(frozen=True, kw_only=True)
class Leaf(Fact):
    """The leaf of the tree at which a rollout ends."""

    node: str
    """Name of the leaf: indices of the branches from the root."""
    ended: str | None
    """Why the path ended."""


@frozen
class Tree(Rollout):
    """Samples `n` completions that share prefixes."""

    n: PositiveInt = 16
    """Leaves: completions per task."""
    segment: PositiveInt = 512
    """Tokens of a segment that does not end its path."""
    depth: PositiveInt = 14
    """Most segments of a path; one that reaches it has stop reason ``length``."""
    width: PositiveInt = 2
    """Branches at each node while there are fewer than `n` paths."""
    repeat_length: PositiveInt = 32
    """Length in characters of the texts that are counted as repetitions."""
    repeat_count: PositiveInt = 8
    """A path ends, with stop reason ``length``, when a text of that length occurs this many times in one segment."""
    sampling: Sampling = Sampling(max_tokens=7168)
    """How tokens are sampled; `max_tokens` limits a whole completion. Stop strings are not allowed, stop tokens are."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @field_validator("sampling")
    @classmethod
    def refuse_stop_strings(cls, sampling: Sampling) -> Sampling:
        """Refuse stop strings, which may span two segments."""
        if sampling.stop:
            raise PydanticCustomError(
                "stop", "a stop string may span two segments of a tree; use stop_token_ids instead"
            )
        return sampling

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of the `n` leaves, in the order in which they ended."""
        sampler = sampler_of(self.role, samplers)
        root = Path(segments=(prompt_segment(task, sampler),))
        leaves: list[Path] = []
        children: Counter[str] = Counter()
        growing = [(root, min(self.width, self.n))]
        while growing:
            requests = []
            for path, width in growing:
                requests.append(self._grow(path, width, children[path.node], sampler))
                children[path.node] += width
            grown = [path for siblings in await asyncio.gather(*requests) for path in siblings]
            ended = [path for path in grown if path.ended]
            leaves += ended
            deeper = [path for path in grown if not path.ended]
            growing = self._branch(deeper, len(ended), len(leaves)) if deeper else self._fall_back(root, leaves)
        return [Group(key=task.key, trajectories=tuple(_rollout(task, leaves, i) for i in range(len(leaves))))]

    async def _grow(self, path: Path, width: int, first: int, sampler: Sampler) -> list[Path]:
        """Sample `width` segments after a path, numbered as its children from `first`."""
        written = path.written_ids
        before = np.concatenate([path.segments[0].token_ids, written])
        room = min(self.sampling.max_tokens - len(written), sampler.context - len(before))
        # The sampler refuses a prompt that leaves no room.
        sampling = replace(self.sampling, max_tokens=max(1, min(self.segment, room)))
        completions = await sampler.sample(before, width, sampling, path.segments[0].vectors)
        children = []
        for number, completion in enumerate(completions, start=first):
            ended = self._ending(completion, room, depth=len(path.way) + 1)
            segment = self._segment(path, completion, ended, sampler)
            children.append(Path(way=(*path.way, number), segments=(*path.segments, segment), ended=ended))
        return children

    def _ending(self, completion: Completion, room: int, depth: int) -> Ending:
        """Why a path ends with this segment; empty if it does not."""
        if completion.stop_reason != "length":
            return "stop"
        if len(completion.token_ids) >= room or depth >= self.depth:
            return "length"
        return "repetition" if self._repeats(completion.text) else ""

    def _repeats(self, text: str) -> bool:
        """Whether some text of `repeat_length` characters occurs `repeat_count` times, overlaps included."""
        windows = Counter(text[i : i + self.repeat_length] for i in range(len(text) - self.repeat_length + 1))
        return max(windows.values(), default=0) >= self.repeat_count

    def _segment(self, path: Path, completion: Completion, ended: Ending, sampler: Sampler) -> Segment:
        """A completion as a node of the tree, with its part of the text of the whole path.

        The text of a segment decoded by itself would lack spaces that tokenizers leave out at the start, and characters
        whose bytes are in two segments.
        """
        text = sampler.decode(np.concatenate([path.written_ids, completion.token_ids]))
        if ended == "stop":
            text = text[: len(text) - (len(sampler.decode(completion.token_ids)) - len(completion.text))]
        elif not ended:
            text = text.rstrip(REPLACEMENT)
        before = sum(len(s.text) for s in path.segments[1:])
        return replace(sampled_segment(completion, self.role), state_key=path.node, text=text[before:])

    def _branch(self, deeper: Sequence[Path], just_ended: int, ended: int) -> list[tuple[Path, int]]:
        """Split the number of next segments among the open paths."""
        budget = max(len(deeper), min(self.n - ended, self.width * (len(deeper) + just_ended)))
        width, rest = divmod(budget, len(deeper))
        return [*((path, width) for path in deeper[:-1]), (deeper[-1], width + rest)]

    def _fall_back(self, root: Path, leaves: Sequence[Path]) -> list[tuple[Path, int]]:
        """Paths to continue, with their widths, when all have ended; none if there are enough leaves."""
        rng = np.random.default_rng(np.concatenate([leaf.segments[-1].token_ids for leaf in leaves]))
        stopped = [leaf for leaf in leaves if leaf.ended == "stop"]
        again: list[tuple[Path, int]] = []
        missing = self.n - len(leaves)
        for leaf in [stopped[i] for i in rng.permutation(len(stopped))] or [root]:
            depth = int(rng.integers(max(len(leaf.way), 1)))
            width = min(self.width, missing)
            missing -= width
            again += [(leaf.cut(depth), width)] if width else []
        return again


def _rollout(task: Task, leaves: Sequence[Path], sample: int) -> Trajectory:
    """A leaf as a trajectory; its parent is the first leaf with the most common segments."""
    leaf = leaves[sample]
    common = [sum(a is b for a, b in zip(leaf.segments, other.segments, strict=False)) for other in leaves[:sample]]
    most = max(common, default=1)
    return Trajectory(
        task=task,
        segments=leaf.segments,
        stop_reason="stop" if leaf.ended == "stop" else "length",
        sample=sample,
        parent=common.index(most) if most > 1 else None,
        facts=(Leaf(node=leaf.node, ended=leaf.ended),),
    )
