r"""Attempts, and then groups of attempts that go on from the first lines of the best of them.

Source: ReST-GRPO of ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL). Of the plain
attempts, if their rewards differ enough (population standard deviation of at least 0.05) and the best is good
enough (at least 0.9): the first best one is cut into its L lines, and ceil(L / 2) of its beginnings are drawn with
replacement, the one of i + 1 lines in proportion to 0.95^i. Each beginning, which may be all of it, is given to a group
of attempts of its own. It is not learned from, and the reward judges beginning and continuation together.

The given part is a cut of the sampled ids, without the end token. Its actor is ``demonstration``, so that metrics and
curricula leave out attempts that had this help.

Differs: the authors do this once, before training, with 5 attempts by the first policy, and learn from fresh ones. Here
it is done in every step: the plain attempts are learned from themselves, and the beginnings are those of the policy as
it is. Plain groups with a smaller deviation come back too; a filter leaves them out. A beginning that leaves no room in
the context is not gone on from.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Prefix, Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Segment, Task, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]
DEVIATION = 0.05


@frozen
class Restarted(Rollout):
    """`n` plain attempts, and `n` more from each beginning that is drawn."""

    n: PositiveInt = 8
    """Attempts in each group."""
    delimiter: Annotated[str, Field(min_length=1)] = "\n"
    """What ends a line."""
    share: Share = 0.5
    """Beginnings that are drawn, as a share of the lines of the best attempt, rounded up."""
    decay: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    """How much less likely a beginning is than the one that is a line shorter."""
    accept: float = 0.9
    """Smallest reward of a best attempt that is gone on from."""
    deviation: NonNegativeFloat = DEVIATION
    """Smallest population standard deviation of the plain rewards at which anything is gone on from."""
    sampling: Sampling = Sampling()
    """How tokens are drawn; `max_tokens` limits a whole attempt, the given part included."""
    role: str = "policy"
    """The model that writes, and whose tokens are trained."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """The plain group, then one for each beginning."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        plain = await judge(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        given = self._beginnings(plain, sampler)
        groups = await asyncio.gather(*(self._go_on(task, prompt, part, sampler) for part in given))
        return [plain, *[await judge(group) for group in groups]]

    def _beginnings(self, plain: Group, sampler: Sampler) -> list[Segment]:
        """Beginnings of the first best attempt, drawn with replacement."""
        sound = [t for t in plain if t.score is not None and t.score.status != "error"]
        values = [t.score.value for t in sound if t.score is not None]
        if not values or np.std(values) < self.deviation or max(values) < self.accept:
            return []
        best = sound[int(np.argmax(values))].segments[-1]
        cuts = line_ends(best, self.delimiter, sampler)
        weights = self.decay ** np.arange(len(cuts))
        bounds = np.cumsum(weights) / weights.sum()
        drawn = [
            int(np.searchsorted(bounds, sampler.uniform(), "right")) for _ in range(math.ceil(self.share * len(cuts)))
        ]
        room = min(sampler.context - len(plain.trajectories[0].segments[0]), self.sampling.max_tokens)
        return [_beginning(best, cuts[i], sampler) for i in drawn if cuts[i] < room]

    async def _go_on(self, task: Task, prompt: Segment, given: Segment, sampler: Sampler) -> Group:
        """Attempts that begin with the given part."""
        before = np.concatenate([prompt.token_ids, given.token_ids])
        sampling = replace(self.sampling, max_tokens=self.sampling.max_tokens - len(given))
        attempts: Sequence[Trajectory] = [
            Trajectory(
                task=task,
                segments=(prompt, given, sampled_segment(c, self.role)),
                stop_reason=c.stop_reason,
                sample=i,
                facts=(Prefix(prefix_tokens=len(given)),),
            )
            for i, c in enumerate(await sampler.sample(before, self.n, sampling))
        ]
        return Group(key=task.key, trajectories=tuple(attempts))


def line_ends(written: Segment, delimiter: str, sampler: Sampler) -> list[int]:
    """Number of tokens of each beginning that ends with a line; the last is all that was written but the end token."""
    ids = written.token_ids
    whole = next((k for k in range(len(ids) + 1) if len(sampler.decode(ids[:k])) >= len(written.text)), len(ids))
    lines = [sampler.decode(ids[:k]).count(delimiter) for k in range(whole + 1)]
    ends = [k for k in range(1, whole) if lines[k] > lines[k - 1] and sampler.decode(ids[k:whole]).strip()]
    return [*ends, max(whole, 1)]


def _beginning(written: Segment, cut: int, sampler: Sampler) -> Segment:
    """The first tokens of what was written, to be given and not learned."""
    ids = written.token_ids[:cut]
    return Segment(actor="demonstration", token_ids=ids, text=sampler.decode(ids))
