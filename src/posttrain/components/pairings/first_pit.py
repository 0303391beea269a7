"""A correct solution preferred to an incorrect one that is cut after its first pit, the step where it was lost.

Source: Setlur et al. 2024, arXiv:2406.14532, sections 6 and 7. Steps end with a delimiter. Of each prefix of an
incorrect answer that ends with a step, Q is the probability that the best of k continuations is correct, estimated from
n of them of which c are:

    Q = 1 - C(n - c, k) / C(n, k)

The first pit is the step with the lowest Q, the first of equals; since a state's value is the Q of the step before it,
`largest_drop` takes the step with the lowest advantage Q_i - Q_(i-1) instead, with Q_0 from the rollouts of the bare
question. Q of the last step is 0, since the answer ends there and is incorrect. Where a model recovers from the pit now
and then, the lowest Q is often not found with few continuations, and the largest drop is.

Rejected is the incorrect answer cut after the pit, without an end token; chosen is a whole correct solution, so that
the two share the question alone. With `shared`, chosen is the prefix before the pit with a correct continuation of it,
whose shared tokens then have no gradient. The pair's fields have ``q`` of each step, the ``pit`` (from 0) and the
``margin``, 1 - Q of the pit.

Differs: the paper samples k = 5 continuations, from the best of 5 of its model; here n give the same expectation. Its
solutions are a teacher's or the model's own; `chosen` states which.
"""

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.pairings import NOTHING_SCORED, Paired, Pairing, Rollouts
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Preference, Segment, Trajectory

Samples = Annotated[int, Field(ge=1, le=4096)]


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The steps of an answer up to the end of one, and what continuations of them gave."""

    tokens: int
    text: str
    q: float
    continued: str = ""
    """A correct completion that begins with it; empty where none was found."""


@frozen
class FirstPit(Pairing):
    """Pairs a correct solution with incorrect ones, each cut after its first pit."""

    n: Samples = 5
    """Continuations of each prefix."""
    k: Samples | None = None
    """Q is the probability that the best of this many is correct, at most n; None is 5, or n where that is less."""
    pit: Literal["lowest", "largest_drop"] = "lowest"
    """The step of the lowest Q, or of the largest fall of Q."""
    chosen: Literal["any", "given", "own"] = "any"
    """The correct solution: the task's first demonstration, a correct rollout, or the first of both that there is."""
    shared: bool = False
    """Whether chosen is a correct continuation of the prefix before the pit."""
    most: PositiveInt = 1
    """Most incorrect answers of a task that are used."""
    delimiter: Annotated[str, Field(min_length=1)] = "\n"
    """What ends a step."""
    sampling: Sampling = Sampling()
    """How continuations are sampled; `max_tokens` limits prefix and continuation together."""

    @model_validator(mode="after")
    def check_samples(self) -> Self:
        """Refuse a best of more than are sampled."""
        if self.k is not None and self.k > self.n:
            raise PydanticCustomError("k", "k is the number of continuations of which one is correct: at most n")
        return self

    @property
    def gives(self) -> frozenset[str]:
        """1 - Q of the pit."""
        return frozenset({"margin"})

    @property
    def _best(self) -> int:
        return min(5, self.n) if self.k is None else self.k

    async def pair(self, rollouts: Rollouts) -> Paired:
        """A pair for each incorrect answer, up to `most`."""
        found = rollouts.usable
        if not found:
            return Paired(reason=NOTHING_SCORED)
        wrong = [t for t in found if not t.solved][: self.most]
        if not wrong:
            return Paired(reason="no incorrect answer")
        solution = self._solution(rollouts)
        if solution is None and not self.shared:
            return Paired(reason="no correct solution")
        pairs, sampled = [], 0
        for trajectory in wrong:
            prefixes = await self._prefixes(rollouts, trajectory)
            sampled += self.n * (len(prefixes) - 2)
            made = self._made(rollouts, trajectory, prefixes, solution)
            if made is not None:
                pairs.append(made)
        reason = "" if pairs else "no correct continuation before the pit"
        return Paired(pairs=tuple(pairs), reason=reason, rollouts=sampled)

    def _solution(self, rollouts: Rollouts) -> tuple[str, dict[str, object]] | None:
        """The correct solution, and where it is from."""
        given = [text for text in rollouts.task.demonstrations if text.strip()][:1]
        if given and self.chosen != "own":
            return given[0], {"writer": "data"}
        own = [t for t in rollouts.usable if t.solved][:1]
        return (own[0].completion, rollouts.origin(own[0])) if own and self.chosen != "given" else None

    async def _prefixes(self, rollouts: Rollouts, trajectory: Trajectory) -> list[Prefix]:
        """The bare question, then the prefix after each step, the whole answer last."""
        answer, sampler = trajectory.segments[-1], rollouts.sampler
        scored = [t for t in rollouts.trajectories if t.score is not None and t.score.status != "error"]
        right = sum(t.solved for t in scored)
        first = best_of(len(scored), right, min(self._best, len(scored)))
        own = next((t.completion for t in rollouts.usable if t.solved), "")
        bare = Prefix(tokens=0, text="", q=first, continued=own)
        ends = step_ends(answer, self.delimiter, sampler)
        inner = await asyncio.gather(*(self._continued(rollouts, trajectory, end) for end in ends[:-1]))
        return [bare, *inner, Prefix(tokens=ends[-1], text=trajectory.completion, q=0.0)]

    async def _continued(self, rollouts: Rollouts, trajectory: Trajectory, tokens: int) -> Prefix:
        """The prefix of `tokens` tokens, with Q from its continuations; one without room to go on has Q 0."""
        prompt, answer = trajectory.segments[0], trajectory.segments[-1]
        ids = answer.token_ids[:tokens]
        text = rollouts.sampler.decode(ids)
        before = np.concatenate([prompt.token_ids, ids])
        room = min(self.sampling.max_tokens - tokens, rollouts.sampler.context - len(before))
        if room < 1:
            return Prefix(tokens=tokens, text=text, q=0.0)
        sampler = rollouts.sampler.bind("pit", trajectory.sample, tokens)
        completions = await sampler.sample(before, self.n, replace(self.sampling, max_tokens=room), prompt.vectors)
        prefix = Segment(actor="demonstration", token_ids=ids, text=text)
        group = Group(
            key=rollouts.task.key,
            trajectories=tuple(
                Trajectory(
                    task=rollouts.task,
                    segments=(prompt, prefix, Segment(actor="policy", token_ids=c.token_ids, logp=c.logp, text=c.text)),
                    stop_reason=c.stop_reason,
                    sample=i,
                )
                for i, c in enumerate(completions)
            ),
        )
        valid = [t for t in await rollouts.scorer(group) if t.score is not None and t.score.status != "error"]
        right = [t for t in valid if t.solved]
        q = best_of(len(valid), len(right), min(self._best, len(valid)))
        ended = [t.completion for t in right if t.stop_reason != "length"]
        return Prefix(tokens=tokens, text=text, q=q, continued=ended[0] if ended else "")

    def _made(
        self,
        rollouts: Rollouts,
        trajectory: Trajectory,
        prefixes: list[Prefix],
        solution: tuple[str, dict[str, object]] | None,
    ) -> Preference | None:
        """The pair of an incorrect answer; None where there is no correct text to prefer."""
        q = [prefix.q for prefix in prefixes[1:]]
        drops = [after - before.q for after, before in zip(q, prefixes, strict=False)]
        pit = int(np.argmin(q if self.pit == "lowest" else drops))
        if self.shared:
            text = prefixes[pit].continued
            solution = (text, {"writer": "policy", "after": prefixes[pit].text}) if text else None
        last = pit == len(q) - 1
        rejected = prefixes[pit + 1].text
        if solution is None or solution[0] == rejected or not rejected.strip():
            return None
        fields = {
            "rule": self.kind,
            "margin": 1.0 - q[pit],
            "pit": pit,
            "q": q,
            "origin": [solution[1], rollouts.origin(trajectory)],
            **({} if last else {"cut": True}),
        }
        return Preference(chosen=solution[0], rejected=rejected, fields=fields)


def best_of(n: int, right: int, k: int) -> float:
    """The probability that one of k of n rollouts, of which `right` are correct, is correct; 0 for none."""
    return 1.0 - math.comb(n - right, k) / math.comb(n, k) if k > 0 else 0.0


def step_ends(segment: Segment, delimiter: str, sampler: Sampler) -> list[int]:
    """Number of tokens up to the end of each step; the last one is that of the text, without end tokens."""
    ids = segment.token_ids
    whole = next((k for k in range(len(ids) + 1) if len(sampler.decode(ids[:k])) >= len(segment.text)), len(ids))
    count = [sampler.decode(ids[:k]).count(delimiter) for k in range(whole + 1)]
    ends = [k for k in range(1, whole) if count[k] > count[k - 1] and sampler.decode(ids[k:whole]).strip()]
    return [*ends, max(whole, 1)]
