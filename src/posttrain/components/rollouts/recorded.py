"""Completions that were written and rated before the run, in the place of samples: learning from a fixed set of data.

Every rated completion of a task becomes a trajectory of the task's group. Its log-probabilities are those of the model
in `role`: a copy of the policy as the stage finds it is what data of unknown origin is taken to come from, as in
offline runs of TOPR (Le Roux et al. 2025, arXiv:2503.14286). That copy stays as it is, so that they do not move while
the policy does. What a completion is worth is for a reward to say: `rating` reads the rating, any other judges anew.

Recorded completions are no attempts of the policy: they do not count in its metrics or its curriculum.

With a `delimiter`, such as the newline of OREO (Wang et al. 2024, arXiv:2412.16145), a completion is cut into its
lines, each a segment and a turn, for losses that go by steps.

Differs: nothing known.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import DataRating, Rollout
from posttrain.components.rollouts._segments import check_length, prompt_segment, sampler_of
from posttrain.components.rollouts.restarted import line_ends
from posttrain.engines import Sampler
from posttrain.errors import UserError
from posttrain.signals import Signal, logp_of
from posttrain.types import Group, Rated, Segment, Task, Trajectory


@frozen
class Recorded(Rollout):
    """The rated completions of a task, as one group; nothing is sampled."""

    role: str = "behavior"
    """The model that is taken to have written them; with ``policy`` it is the policy as each step finds it."""
    delimiter: Annotated[str, Field(min_length=1)] | None = None
    """What ends a line, where each line of a completion is a turn by itself; None leaves completions whole."""
    fewest: PositiveInt = 1
    """Rated completions that some task must have: 2 for losses that compare those of one task."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that is taken to have written them."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of what was recorded."""
        return frozenset({logp_of(self.role)})

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have a rated completion."""
        bare = [task.key for task in tasks if not task.rated]
        if bare:
            raise UserError(
                f"the recorded rollout learns from rated completions, but {len(bare)} of {len(tasks)} tasks have none; "
                f"the first is task {bare[0]}. Give columns named completion (or response) and rating (or label, "
                "reward, score), or take the rollout 'independent', which samples"
            )
        if tasks and max(len(task.rated) for task in tasks) < self.fewest:
            raise UserError(
                f"rated completions of one task are compared with one another, but none of the {len(tasks)} tasks has "
                f"{self.fewest} of them. A row of a file is a task; 'tasks={{kind: gathered, tasks: FILE}}' "
                "makes one task of those with the same prompt"
            )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: the completions in the order of the data."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        segments = await asyncio.gather(*(_segment(task, rated, prompt, sampler) for rated in task.rated))
        trajectories = tuple(
            Trajectory(
                task=task,
                segments=(prompt, *self._lines(segment, sampler)),
                stop_reason="stop",
                sample=i,
                facts=(DataRating(rating=rated.rating),),
            )
            for i, (segment, rated) in enumerate(zip(segments, task.rated, strict=True))
        )
        return [Group(key=task.key, trajectories=trajectories)] if trajectories else []

    def _lines(self, whole: Segment, sampler: Sampler) -> list[Segment]:
        """A completion line by line, cut after the tokens that complete a delimiter; the end token is the last line's.

        The texts are those of the beginnings, since a line by itself may lack what a tokenizer leaves out.
        """
        if self.delimiter is None:
            return [whole]
        assert whole.logp is not None, "recorded completions were judged by a model"
        cuts = line_ends(whole, self.delimiter, sampler)[:-1]
        until = [len(sampler.decode(whole.token_ids[:cut])) for cut in cuts]
        ids, texts = pairwise([0, *cuts, len(whole)]), pairwise([0, *until, len(whole.text)])
        lines = [
            replace(whole, token_ids=whole.token_ids[a:b], logp=whole.logp[a:b], text=whole.text[c:d])
            for (a, b), (c, d) in zip(ids, texts, strict=True)
        ]
        return [replace(line, turn=turn) for turn, line in enumerate(lines)]


async def _segment(task: Task, rated: Rated, prompt: Segment, sampler: Sampler) -> Segment:
    """A completion, its end token included, with the log-probabilities that its writer would have given it."""
    token_ids = sampler.encode_completion(task.prompt, rated.completion)
    check_length(task, prompt, token_ids, sampler, "rated completion")
    segment = Segment(actor="recorded", token_ids=token_ids, trained=True, text=rated.completion)
    whole = Trajectory(task=task, segments=(prompt, segment), stop_reason="stop")
    logp = await sampler.logp(whole.token_ids, vectors=whole.vectors)
    return replace(segment, logp=logp[len(prompt) - 1 :])
