"""Pairs of the leaves of a complete tree: responses that share a prefix and differ after it.

Source: Qiu et al. 2024, arXiv:2402.10184, algorithm 1, of which a detailed note was read: the first segment of a
response is drawn, every segment branches into B continuations, D times, and pairs are drawn among the B^D leaves, which
are complete responses. A leaf that ends before depth D is shorter, and all leaves under it are one. With depth l of the
last common ancestor there are B^l B(B-1)/2 B^(2(D-l-1)) pairs: 16, 8 and 4 for B = 2 and D = 3. Here the tree branches
at the prompt first, so that l = 0 are pairs without a common prefix. ``depth: 1`` is the chain that the paper compares
with: independent responses.

One pair of every depth of the ancestor that has some is drawn, then a second one, up to `most`. Their numbers are
``ancestor``, the depth l, and ``suffix``, the mean number of tokens after the common prefix, which is what a labeller
must read.

The tree is sampled by the first writer, and the rollouts of the selection are in no pair (``n: 1`` samples the fewest);
a task none of which could be scored has no tree. Leaves of the same text are one, equal scores make no pair, and cut
leaves are left out, unless `cut` is set.

Differs: the number of branches, depth, length of segments and number of pairs are not published.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.pairings import EQUAL, NOTHING_SCORED, Paired, Pairing, Rollouts
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Group, Preference, Segment, Trajectory


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A path from the prompt."""

    way: tuple[int, ...] = ()
    """Index of the branch at each depth."""
    parts: tuple[Completion, ...] = field(default=())
    ended: bool = False


@frozen
class PrefixTree(Pairing):
    """Grows a tree and pairs its leaves."""

    branches: Annotated[int, Field(ge=2, le=8)] = 2
    """B: continuations of every segment."""
    depth: Annotated[int, Field(ge=1, le=6)] = 3
    """D: segments of a response at most."""
    segment: PositiveInt = 8
    """Tokens of a segment; the last one goes on to the end."""
    most: PositiveInt = 8
    """Most pairs of a task."""
    cut: bool = False
    """Whether leaves that were cut at the limit of tokens are paired too."""
    sampling: Sampling = Sampling(max_tokens=64)
    """How segments are sampled; `max_tokens` limits the whole response."""

    @property
    def gives(self) -> frozenset[str]:
        """Depth of the common ancestor, and tokens after it."""
        return frozenset({"ancestor", "suffix"})

    async def pair(self, rollouts: Rollouts) -> Paired:
        """Pairs of the leaves of one tree."""
        if all(t.score is None or t.score.status == "error" for t in rollouts.trajectories):
            return Paired(reason=NOTHING_SCORED)
        branches = await self._grown(rollouts)
        group = Group(key=rollouts.task.key, trajectories=tuple(_leaf(rollouts, b, i) for i, b in enumerate(branches)))
        scored = (await rollouts.scorer(group)).trajectories
        leaves: dict[str, tuple[Branch, Trajectory]] = {}
        for branch, leaf in zip(branches, scored, strict=True):
            valid = leaf.score is not None and leaf.score.status != "error" and (branch.ended or self.cut)
            if valid and leaf.completion.strip():
                leaves.setdefault(leaf.completion, (branch, leaf))
        if not leaves:
            return Paired(reason=NOTHING_SCORED, rollouts=len(branches))
        pairs = self._pairs(list(leaves.values()), rollouts.sampler.bind("order"))
        return Paired(pairs=pairs, reason="" if pairs else EQUAL, rollouts=len(branches))

    async def _grown(self, rollouts: Rollouts) -> list[Branch]:
        """The leaves, in the order of their ways."""
        prompt = rollouts.sampler.prompt(rollouts.task)
        branches = [Branch()]
        for level in range(self.depth):
            grown = await asyncio.gather(*(self._continued(rollouts, prompt, b, level) for b in branches))
            branches = [branch for own in grown for branch in own]
        return branches

    async def _continued(self, rollouts: Rollouts, prompt: Segment, branch: Branch, level: int) -> list[Branch]:
        """The branches of a path; an ended one stays."""
        written = sum(len(part.token_ids) for part in branch.parts)
        before = np.concatenate([prompt.token_ids, *(part.token_ids for part in branch.parts)])
        room = min(self.sampling.max_tokens - written, rollouts.sampler.context - len(before))
        if branch.ended or room < 1:
            return [branch]
        last = level == self.depth - 1
        sampling = replace(self.sampling, max_tokens=room if last else min(self.segment, room))
        sampler = rollouts.sampler.bind("tree", "/".join(map(str, branch.way)))
        parts = await sampler.sample(before, self.branches, sampling, prompt.vectors)
        return [
            Branch(way=(*branch.way, i), parts=(*branch.parts, part), ended=part.stop_reason == "stop")
            for i, part in enumerate(parts)
        ]

    def _pairs(self, leaves: Sequence[tuple[Branch, Trajectory]], sampler: Sampler) -> tuple[Preference, ...]:
        """Pairs of unequal scores, one of every depth of the ancestor, then a second one, ..., in a drawn order."""
        by_depth: dict[int, list[Preference]] = {}
        for (a, one), (b, other) in combinations(leaves, 2):
            assert one.score is not None and other.score is not None, "only scored leaves are paired"
            if one.score.value == other.score.value:
                continue
            better, worse = (one, other) if one.score.value > other.score.value else (other, one)
            shared = next((d for d, (x, y) in enumerate(zip(a.way, b.way, strict=False)) if x != y), 0)
            tokens = [sum(len(part.token_ids) for part in path.parts[shared:]) for path in (a, b)]
            fields = {
                "rule": self.kind,
                "ancestor": float(shared),
                "suffix": sum(tokens) / 2,
                "origin": [
                    {"writer": "policy", "sample": t.sample, "value": t.score.value}
                    for t in (better, worse)
                    if t.score is not None
                ],
            }
            pair = Preference(chosen=better.completion, rejected=worse.completion, fields=fields)
            by_depth.setdefault(shared, []).append(pair)
        orders = [sorted(own, key=lambda _: sampler.uniform()) for _, own in sorted(by_depth.items())]
        turns = max(map(len, orders), default=0)
        drawn = [own[turn] for turn in range(turns) for own in orders if turn < len(own)]
        return tuple(drawn[: self.most])


def _leaf(rollouts: Rollouts, branch: Branch, sample: int) -> Trajectory:
    """The response of a path, as a rollout."""
    prompt = rollouts.sampler.prompt(rollouts.task)
    segments = tuple(
        Segment(actor="policy", token_ids=part.token_ids, logp=part.logp, trained=True, text=part.text)
        for part in branch.parts
    )
    reason = branch.parts[-1].stop_reason if branch.parts else "length"
    return Trajectory(task=rollouts.task, segments=(prompt, *segments), stop_reason=reason, sample=sample)
