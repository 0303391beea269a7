"""Completions that go on from a text which is put after the prompt, such as an empty block of thoughts.

Source: the first stage of ToTRL, arXiv:2505.12717: the block of thoughts is given empty, so that the model reasons in
its answer. The text is in the prompt's place: it is not sampled, and there is neither a loss nor a ratio at its tokens.
It follows the chat template's opening of the assistant's turn. Held-out answers are without it.

Differs: nothing known.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Message, Segment, Task, Trajectory


@frozen
class Forced(Rollout):
    """Samples `n` completions after a given start of the answer."""

    prefix: Annotated[str, Field(min_length=1)] = "<think>\n\n</think>\n\n"
    """The text that every answer begins with."""
    n: PositiveInt = 8
    """Completions per task."""
    sampling: Sampling = Sampling()
    """How they are sampled."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def group_size(self) -> int | None:
        """The setting `n`."""
        return self.n

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n`."""
        sampler = sampler_of("policy", samplers)
        prompt = prompt_segment(task, sampler)
        ids = sampler.encode_reply("", prompt.token_ids, Message(role="user", content=self.prefix))
        given = Segment(actor="environment", token_ids=ids, text=self.prefix)
        start = np.concatenate([prompt.token_ids, ids])
        completions = await sampler.sample(start, self.n, self.sampling, prompt.vectors)
        trajectories = tuple(
            Trajectory(
                task=task,
                segments=(prompt, given, sampled_segment(c, "policy")),
                stop_reason=c.stop_reason,
                sample=i,
            )
            for i, c in enumerate(completions)
        )
        return [Group(key=task.key, trajectories=trajectories)]
