"""Rated completions of the data instead of samples, for offline learning.

Every rated completion of a task becomes a trajectory of the task's group. Its log-probabilities are those of the model
in `role`. Data of unknown origin is taken to come from the initial policy of the stage, as in offline runs of TOPR (Le
Roux et al. 2025, arXiv:2503.14286); a frozen copy of it keeps the log-probabilities constant. The reward `rating` takes
the rating as the score; any other reward scores the completions itself.

Recorded completions are not the policy's: they do not count in its metrics or its curriculum.

With a `delimiter`, such as the newline of OREO (Wang et al. 2024, arXiv:2412.16145), a completion is split into lines,
each a segment and a turn, for losses of steps.

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
    """Returns the rated completions of a task as one group; nothing is sampled."""

    role: str = "behavior"
    """The behavior policy of the data; ``policy`` is the current policy of each step."""
    delimiter: Annotated[str, Field(min_length=1)] | None = None
    """What ends a line, where each line of a completion is a turn; None does not split completions."""
    fewest: PositiveInt = 1
    """Rated completions that at least one task must have: 2 for losses that compare those of a task."""

    @property
    def roles(self) -> frozenset[str]:
        """The behavior policy."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities under the behavior policy."""
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
        """A completion as lines, cut after the tokens that complete a delimiter; the last line has the end token.

        Texts are differences of decoded prefixes, since a line decoded by itself may lack characters.
        """
        if self.delimiter is None:
            return [whole]
        assert whole.logp is not None, "recorded completions have log-probabilities"
        cuts = line_ends(whole, self.delimiter, sampler)[:-1]
        until = [len(sampler.decode(whole.token_ids[:cut])) for cut in cuts]
        ids, texts = pairwise([0, *cuts, len(whole)]), pairwise([0, *until, len(whole.text)])
        lines = [
            replace(whole, token_ids=whole.token_ids[a:b], logp=whole.logp[a:b], text=whole.text[c:d])
            for (a, b), (c, d) in zip(ids, texts, strict=True)
        ]
        return [replace(line, turn=turn) for turn, line in enumerate(lines)]


async def _segment(task: Task, rated: Rated, prompt: Segment, sampler: Sampler) -> Segment:
    """A completion, its end token included, with its log-probabilities under the behavior policy."""
    token_ids = sampler.encode_completion(task.prompt, rated.completion)
    check_length(task, prompt, token_ids, sampler, "rated completion")
    segment = Segment(actor="recorded", token_ids=token_ids, trained=True, text=rated.completion)
    whole = Trajectory(task=task, segments=(prompt, segment), stop_reason="stop")
    logp = await sampler.logp(whole.token_ids, vectors=whole.vectors)
    return replace(segment, logp=logp[len(prompt) - 1 :])
