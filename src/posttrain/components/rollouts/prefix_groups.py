"""Rollouts that go on from a prefix of a trace: some think on, the others must answer at once.

Source: Qu et al. 2025, Meta Reinforcement Fine-Tuning (MRT), arXiv:2503.07572, and the README of its release
(CMU-AIRe/MRT at 1815a8c). A trace is sampled and split into episodes, and a prefix of some of them is drawn, none
included. Of `n` rollouts, half continue the prefix; in the others a text ends the thoughts after the prefix, and the
answer follows. Their mean reward estimates J(prefix), the success of an answer that is forced there.

`ahead` states how far the first half goes. ``episode``: one more episode, and then a forced answer, which is not
trained, so that the reward less J(prefix) is the progress of that episode. ``end``: until the rollout ends. Where the
rest of a rollout is one episode, both are the same.

Prefix and forced text are context, and not trained. `boundaries`: a prefix at one boundary, drawn evenly, or a group
at each of the first `most` (the release's online form: up to 6 episodes).

Differs: the prefix is sampled by the policy of the step; the paper's is that of an older one.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.component.automatic import Count
from posttrain.components.rollouts import Continued, Rollout
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.grading.pieces import Split, ranges_of, tokens_until
from posttrain.types import Completion, Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class PrefixGroups(Rollout):
    """Samples `n` rollouts from each drawn prefix, half of which answer at once."""

    n: Annotated[int, Field(ge=2, le=4096)] = 8
    """Rollouts of a group; the smaller half of an odd number thinks on."""
    split: Split = "episodes"
    """What the episodes are."""
    end: Annotated[str, Field(min_length=1)] = "\n\nTime is up.\n</think>\n\n"
    """The text after which the answer follows."""
    ahead: Literal["episode", "end"] = "episode"
    """How far a rollout thinks on: one episode, or to its end."""
    boundaries: Literal["one", "all"] = "one"
    """Whether a prefix is drawn, or each has a group."""
    most: Annotated[int, Field(ge=1, le=256)] = 6
    """Most episodes; the last one has the rest."""
    answer_tokens: Count = 32
    """Most tokens of a forced answer."""
    sampling: Sampling = Sampling()
    """How tokens are sampled; `max_tokens` limits the prefix and what continues it."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """A group for each prefix."""
        sampler = sampler_of("policy", samplers)
        prompt = prompt_segment(task, sampler)
        [trace] = await sampler.sample(prompt.token_ids, 1, self.sampling, prompt.vectors)
        ends = self._ends(trace.text, 0)[:-1]
        cuts = list(dict.fromkeys([0, *(tokens_until(trace.token_ids, end, sampler.decode) for end in ends)]))
        cuts = [cut for cut in cuts if cut < len(trace.token_ids)][: self.most]
        if self.boundaries == "one":
            cuts = [cuts[min(int(sampler.uniform() * len(cuts)), len(cuts) - 1)]]
        own = (self._group(task, prompt, _part(trace, 0, cut, sampler), sampler.bind("prefix", cut)) for cut in cuts)
        return list(await asyncio.gather(*own))

    async def _group(self, task: Task, prompt: Segment, prefix: Segment, sampler: Sampler) -> Group:
        """The rollouts of a prefix, those that think on first."""
        start = [prompt, prefix] if len(prefix) else [prompt]
        before = np.concatenate([segment.token_ids for segment in start])
        left = replace(self.sampling, max_tokens=int(self.sampling.max_tokens) - len(prefix))
        on = self.n // 2
        going = await sampler.sample(before, on, left, prompt.vectors)
        further = (self._further(start, completion, sampler.bind("further", i)) for i, completion in enumerate(going))
        rows = list(await asyncio.gather(*further))
        forced, answers = await self._forced(before, self.n - on, sampler.bind("at once"), prompt)
        rows += [([*start, forced, sampled_segment(c, "policy")], c.stop_reason) for c in answers]
        trajectories = tuple(
            Trajectory(
                task=task,
                segments=tuple(segments),
                stop_reason=reason,
                sample=i,
                facts=(Continued(prefix_tokens=len(prefix), at_once=i >= on),),
            )
            for i, (segments, reason) in enumerate(rows)
        )
        return Group(key=task.key, trajectories=trajectories)

    async def _further(
        self, start: list[Segment], completion: Completion, sampler: Sampler
    ) -> tuple[list[Segment], StopReason]:
        """What continues a prefix: all of it, or one episode and the answer that is forced after it."""
        before = "".join(segment.text for segment in start if segment.actor != "prompt")
        ends = self._ends(before + completion.text, len(before))
        cut = tokens_until(completion.token_ids, ends[0] - len(before), sampler.decode) if ends else 0
        if self.ahead == "end" or len(ends) < 2 or not 0 < cut < len(completion.token_ids):
            return [*start, sampled_segment(completion, "policy")], completion.stop_reason
        episode = replace(_part(completion, 0, cut, sampler), trained=True)
        ids = np.concatenate([segment.token_ids for segment in (*start, episode)])
        forced, [answer] = await self._forced(ids, 1, sampler, start[0])
        return [*start, episode, forced, sampled_segment(answer, "policy", trained=False)], answer.stop_reason

    async def _forced(
        self, before: IntArray, n: int, sampler: Sampler, prompt: Segment
    ) -> tuple[Segment, list[Completion]]:
        """The text that ends thoughts, and `n` answers after it."""
        ids = sampler.encode_reply("", before, Message(role="user", content=self.end))
        forced = Segment(actor="environment", token_ids=ids, text=self.end)
        short = replace(self.sampling, max_tokens=self.answer_tokens)
        return forced, await sampler.sample(np.concatenate([before, ids]), n, short, prompt.vectors)

    def _ends(self, text: str, after: int) -> list[int]:
        """Where the episodes of a text end, those beyond a place of it."""
        return [end for _, end in ranges_of(text, self.split, self.most) if end > after]


def _part(completion: Completion, start: int, end: int, sampler: Sampler) -> Segment:
    """Tokens of a completion, not trained."""
    ids = completion.token_ids[start:end]
    return Segment(
        actor="policy",
        token_ids=ids,
        logp=completion.logp[start:end],
        entropy=None if completion.entropy is None else completion.entropy[start:end],
        version=completion.version,
        text=sampler.decode(ids),
    )
