"""Every document of a query is scored by itself: one group of all rollouts of all its documents.

Source: ERank, arXiv:2509.00520: the prompt has a query and one document; the model thinks, then states an integer from
0 to 10. The prompts are the field ``prompts`` of a task, a list; a task without it has its own prompt as the only one.

Of each rollout the document, the score and its probability are recorded (`Pointwise`). The score is the number at the
end of the completion, alone after the last `mark` or on the last line: ``#### 7``, ``10``, not ``5 or 9``. The
probability is that of its tokens when they were sampled, of which s Pr(s) is made.
"""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rollouts import Pointwise as Facts
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.grading.pieces import tokens_until
from posttrain.types import Completion, Group, Task, Trajectory

HIGHEST = 10
"""Largest score."""


@frozen
class Pointwise(Rollout):
    """Samples `n` scores of every document."""

    n: Annotated[int, Field(ge=1, le=4096)] = 8
    """Rollouts of each document."""
    mark: Annotated[str, Field(min_length=1)] = "####"
    """What stands before the score."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def held_out(self, n: int, sampling: Sampling) -> "Pointwise":
        """`n` rollouts of every document."""
        return replace(self, n=n, sampling=sampling)

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for prompts that are no list of texts."""
        for task in tasks:
            prompts_of(task)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group, the rollouts of the first document first."""
        sampler = sampler_of("policy", samplers)
        prompts = prompts_of(task)
        own = (self._document(task, place, prompts[place], sampler) for place in range(len(prompts)))
        found = [trajectory for some in await asyncio.gather(*own) for trajectory in some]
        return [Group(key=task.key, trajectories=tuple(found))]

    async def _document(self, task: Task, place: int, prompt: Task, sampler: Sampler) -> list[Trajectory]:
        bound = sampler.bind("document", place)
        shown = prompt_segment(prompt, bound)
        completions = await bound.sample(shown.token_ids, self.n, self.sampling, shown.vectors)
        return [
            Trajectory(
                task=task,
                segments=(shown, sampled_segment(c, "policy")),
                stop_reason=c.stop_reason,
                sample=place * self.n + i,
                facts=(self._facts(place, c, sampler),),
            )
            for i, c in enumerate(completions)
        ]

    def _facts(self, place: int, completion: Completion, sampler: Sampler) -> Facts:
        found = re.search(rf"(?:\n|{re.escape(self.mark)}|\A)[ \t]*([0-9]{{1,2}})\s*\Z", completion.text)
        if found is None or completion.stop_reason == "length" or int(found[1]) > HIGHEST:
            return Facts(document=place, stated=None, probability=0.0)
        start, end = (tokens_until(completion.token_ids, at, sampler.decode) for at in (found.start(1), found.end(1)))
        logp = float(completion.logp[start:end].astype(float).sum())
        return Facts(document=place, stated=int(found[1]), probability=min(1.0, math.exp(logp)))


def prompts_of(task: Task) -> list[Task]:
    """A task for each prompt. Raises `UserError` where they are no texts."""
    given = task.fields.get("prompts")
    if given is None:
        return [task]
    if isinstance(given, list | tuple) and given and all(isinstance(text, str) and text for text in given):
        return [replace(task, prompt=text) for text in given]
    raise UserError(
        f"task {task.key}: prompts is {given!r:.80}, where a list of texts is needed, each with the query and one "
        "document"
    )
