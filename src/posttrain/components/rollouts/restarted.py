r"""Plain rollouts, and then groups of rollouts that restart from prefixes of the best of them.

Source: ReST-GRPO of ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL). If the rewards of the
plain rollouts have a population standard deviation of at least 0.05, and the best is at least 0.9, the first best
rollout is split into its L lines. ceil(L / 2) of its prefixes are drawn with replacement, the one of i + 1 lines with a
probability proportional to 0.95^i. Each prefix, which may be the whole rollout, is continued by a group of rollouts of
its own. It is not trained, and the reward scores prefix and continuation together.

A prefix is cut from the sampled ids, without the end token. Its actor is ``demonstration``, so that metrics and
curricula leave out rollouts with a prefix.

Differs: the authors do this once, before training, with 5 rollouts of the initial policy, and train on new ones. Here
it is done in every step: the plain rollouts are trained too, and the prefixes are those of the current policy. Plain
groups with a smaller standard deviation are returned too; a filter drops them. A prefix that leaves no room in the
context is not continued.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Prefix, Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Segment, Task, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Restarted(Rollout):
    """Samples `n` plain rollouts, and `n` continuations of each prefix that is drawn."""

    RENAMED: ClassVar = {"deviation": "min_std"}

    n: PositiveInt = 8
    """Rollouts in each group."""
    delimiter: Annotated[str, Field(min_length=1)] = "\n"
    """What ends a line."""
    share: Share = 0.5
    """Number of prefixes that are drawn, as a share of the lines of the best rollout, rounded up."""
    decay: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    """Probability of a prefix relative to the one that is a line shorter."""
    accept: float = 0.9
    """Smallest reward of the best rollout for which prefixes are drawn."""
    min_std: NonNegativeFloat = 0.05
    """Smallest population standard deviation of the plain rewards for which prefixes are drawn."""
    sampling: Sampling = Sampling()
    """How tokens are sampled; `max_tokens` limits a whole rollout, its prefix included."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """The plain group, then one group per prefix."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        plain = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        prefixes = self._prefixes(plain, sampler)
        groups = await asyncio.gather(*(self._continue(task, prompt, prefix, sampler) for prefix in prefixes))
        return [plain, *[await scorer(group) for group in groups]]

    def _prefixes(self, plain: Group, sampler: Sampler) -> list[Segment]:
        """Prefixes of the first best rollout, drawn with replacement."""
        valid = [t for t in plain if t.score is not None and t.score.status != "error"]
        values = [t.score.value for t in valid if t.score is not None]
        if not values or np.std(values) < self.min_std or max(values) < self.accept:
            return []
        best = valid[int(np.argmax(values))].segments[-1]
        cuts = line_ends(best, self.delimiter, sampler)
        weights = self.decay ** np.arange(len(cuts))
        bounds = np.cumsum(weights) / weights.sum()
        drawn = [
            int(np.searchsorted(bounds, sampler.uniform(), "right")) for _ in range(math.ceil(self.share * len(cuts)))
        ]
        room = min(sampler.context - len(plain.trajectories[0].segments[0]), self.sampling.max_tokens)
        return [_prefix(best, cuts[i], sampler) for i in drawn if cuts[i] < room]

    async def _continue(self, task: Task, prompt: Segment, prefix: Segment, sampler: Sampler) -> Group:
        """Rollouts that continue a prefix."""
        before = np.concatenate([prompt.token_ids, prefix.token_ids])
        sampling = replace(self.sampling, max_tokens=self.sampling.max_tokens - len(prefix))
        rollouts: Sequence[Trajectory] = [
            Trajectory(
                task=task,
                segments=(prompt, prefix, sampled_segment(c, self.role)),
                stop_reason=c.stop_reason,
                sample=i,
                facts=(Prefix(prefix_tokens=len(prefix)),),
            )
            for i, c in enumerate(await sampler.sample(before, self.n, sampling))
        ]
        return Group(key=task.key, trajectories=tuple(rollouts))


def line_ends(segment: Segment, delimiter: str, sampler: Sampler) -> list[int]:
    """Number of tokens of each prefix that ends with a line; the last one is the segment without its end token."""
    ids = segment.token_ids
    whole = next((k for k in range(len(ids) + 1) if len(sampler.decode(ids[:k])) >= len(segment.text)), len(ids))
    lines = [sampler.decode(ids[:k]).count(delimiter) for k in range(whole + 1)]
    ends = [k for k in range(1, whole) if lines[k] > lines[k - 1] and sampler.decode(ids[k:whole]).strip()]
    return [*ends, max(whole, 1)]


def _prefix(segment: Segment, cut: int, sampler: Sampler) -> Segment:
    """The first `cut` tokens of a segment, not trained."""
    ids = segment.token_ids[:cut]
    return Segment(actor="demonstration", token_ids=ids, text=sampler.decode(ids))
