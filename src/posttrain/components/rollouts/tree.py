"""TreePO's sampling: completions grow as a tree of segments, so that what they share is sampled once.

Source: Li et al. 2025 (TreePO), arXiv:2508.17445, and the released run: segments of 512 tokens, 16 leaves, at most 14
segments deep, uniform branching. After each segment a path has ended (stop token, limit of tokens or depth,
repetition) or goes deeper. With A paths going deeper, F ended and f of these just now, the next segments are
max(A, min(n - F, width A + width f)), shared out evenly, what is left over to the last path. When no path goes deeper
and leaves are missing, paths that ended by a stop token are taken in a random order, each is cut back to a random
segment end (or to the prompt) and grown again from there, `width` times; without such a path it begins at the prompt.

A leaf is a trajectory whose trained segments are the nodes above it; leaves share the `Segment` objects of their common
nodes. The `state_key` of a segment names the node that it was written after, so that attempts with a key in common
went the same way until there.

A sampler gives its n-th completion by n alone, so the order of requests must not depend on which of them is answered
first: the tree grows in rounds, one segment deeper everywhere, and a round's requests are made in the order of the
paths and awaited together. Random choices are a function of what was sampled.

Differs: the paper also branches by likelihood; its trained run does not, and neither does this. A stop string could lie
across two segments, where it would not be seen, so stop strings are refused.
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
"""What a character is shown as while some of its bytes are missing."""


Ending = Literal["", "stop", "length", "repetition"]
"""Why a path goes no deeper; empty while it does."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """The way from the prompt to the end of one segment."""

    way: tuple[int, ...] = ()
    """Number of the child that was taken at each node."""
    segments: tuple[Segment, ...]
    """The prompt, then what was written."""
    ended: Ending = ""

    @property
    def node(self) -> str:
        """Name of the node at the end: ``/1/0`` is the first child of the prompt's second child."""
        return "/" + "/".join(map(str, self.way))

    @property
    def written_ids(self) -> IntArray:
        """Ids of everything after the prompt."""
        return np.concatenate([np.zeros(0, np.int64), *(s.token_ids for s in self.segments[1:])])

    def cut(self, depth: int) -> "Path":
        """Its first `depth` segments, open again."""
        return Path(way=self.way[:depth], segments=self.segments[: depth + 1])


@dataclass(frozen=True, kw_only=True)
class Leaf(Fact):
    """Where in the tree a rollout ends."""

    node: str
    """Names of the branches from the root."""
    ended: str | None
    """Why the path ended."""


@frozen
class Tree(Rollout):
    """`n` completions that begin with common segments."""

    n: PositiveInt = 16
    """Leaves: completions per task."""
    segment: PositiveInt = 512
    """Tokens of a segment that does not end its path."""
    depth: PositiveInt = 14
    """Segments after which a path ends anyway, with stop reason ``length``."""
    width: PositiveInt = 2
    """Segments that follow one another's end, while there are fewer than `n` paths."""
    repeat_length: PositiveInt = 32
    """Characters of a text whose return counts as repetition."""
    repeat_count: PositiveInt = 8
    """A path ends, with stop reason ``length``, when some text of that length is this many times in one segment."""
    sampling: Sampling = Sampling(max_tokens=7168)
    """How tokens are drawn; `max_tokens` limits a whole completion. Stop strings are not allowed, stop tokens are."""
    role: str = "policy"
    """The model that writes, and whose tokens are trained."""

    @field_validator("sampling")
    @classmethod
    def refuse_stop_strings(cls, sampling: Sampling) -> Sampling:
        """Refuse what could not be seen."""
        if sampling.stop:
            raise PydanticCustomError(
                "stop", "a stop string may lie across two segments of a tree; use stop_token_ids instead"
            )
        return sampling

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
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
        return [Group(key=task.key, trajectories=tuple(_attempt(task, leaves, i) for i in range(len(leaves))))]

    async def _grow(self, path: Path, width: int, first: int, sampler: Sampler) -> list[Path]:
        """Write `width` segments after a path; the first of them is its child number `first`."""
        written = path.written_ids
        before = np.concatenate([path.segments[0].token_ids, written])
        room = min(self.sampling.max_tokens - len(written), sampler.context - len(before))
        # A prompt that leaves no room is the sampler's to refuse.
        sampling = replace(self.sampling, max_tokens=max(1, min(self.segment, room)))
        completions = await sampler.sample(before, width, sampling, path.segments[0].vectors)
        children = []
        for number, completion in enumerate(completions, start=first):
            ended = self._ending(completion, room, depth=len(path.way) + 1)
            segment = self._segment(path, completion, ended, sampler)
            children.append(Path(way=(*path.way, number), segments=(*path.segments, segment), ended=ended))
        return children

    def _ending(self, completion: Completion, room: int, depth: int) -> Ending:
        """Why a path ends with a segment, if it does."""
        if completion.stop_reason != "length":
            return "stop"
        if len(completion.token_ids) >= room or depth >= self.depth:
            return "length"
        return "repetition" if self._repeats(completion.text) else ""

    def _repeats(self, text: str) -> bool:
        """Whether some text of `repeat_length` characters is there `repeat_count` times, overlaps included."""
        windows = Counter(text[i : i + self.repeat_length] for i in range(len(text) - self.repeat_length + 1))
        return max(windows.values(), default=0) >= self.repeat_count

    def _segment(self, path: Path, completion: Completion, ended: Ending, sampler: Sampler) -> Segment:
        """A completion as a node of the tree, with its part of the text of the whole path.

        The text of a segment by itself would lack spaces that tokenizers leave out at the beginning, and characters
        whose bytes lie in two segments.
        """
        text = sampler.decode(np.concatenate([path.written_ids, completion.token_ids]))
        if ended == "stop":
            text = text[: len(text) - (len(sampler.decode(completion.token_ids)) - len(completion.text))]
        elif not ended:
            text = text.rstrip(REPLACEMENT)
        before = sum(len(s.text) for s in path.segments[1:])
        return replace(sampled_segment(completion, self.role), state_key=path.node, text=text[before:])

    def _branch(self, deeper: Sequence[Path], just_ended: int, ended: int) -> list[tuple[Path, int]]:
        """Share the next segments out among the paths that go deeper."""
        budget = max(len(deeper), min(self.n - ended, self.width * (len(deeper) + just_ended)))
        width, rest = divmod(budget, len(deeper))
        return [*((path, width) for path in deeper[:-1]), (deeper[-1], width + rest)]

    def _fall_back(self, root: Path, leaves: Sequence[Path]) -> list[tuple[Path, int]]:
        """Where to grow again when every path has ended; nowhere when there are enough of them."""
        rng = np.random.default_rng(np.concatenate([leaf.segments[-1].token_ids for leaf in leaves]))
        answered = [leaf for leaf in leaves if leaf.ended == "stop"]
        again: list[tuple[Path, int]] = []
        missing = self.n - len(leaves)
        for leaf in [answered[i] for i in rng.permutation(len(answered))] or [root]:
            depth = int(rng.integers(max(len(leaf.way), 1)))
            width = min(self.width, missing)
            missing -= width
            again += [(leaf.cut(depth), width)] if width else []
        return again


def _attempt(task: Task, leaves: Sequence[Path], sample: int) -> Trajectory:
    """A leaf as an attempt; its parent is the first leaf with which it has the most segments in common."""
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
