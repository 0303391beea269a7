"""Independent completions with a budget of tokens by domain of the task, at a temperature that falls over the stage.

Source: Kimi K2, arXiv:2507.20534, from technical notes: a completion that is longer than the budget of its type of task
is cut (and penalized, see the reward `over_budget`); sampling begins at a high temperature, to explore. The shape of
its decay is not known: ``linear`` and ``cosine`` are there. The log-probabilities that are learned from are at the
temperature of their step.
"""

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task

Budget = Annotated[int, Field(ge=1, le=1_000_000)]


@frozen
class Budgeted(Rollout):
    """Samples `n` completions of the prompt within the budget of its domain."""

    n: PositiveInt = 8
    """Completions per task."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """Most tokens of a completion, by domain; those of other domains have ``sampling.max_tokens``."""
    hottest: PositiveFloat | None = None
    """Temperature at the start of the stage; None is that of `sampling` throughout, which is reached at its end."""
    shape: Literal["linear", "cosine"] = "linear"
    """Of the decay."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def follows_progress(self) -> bool:
        """Whether the temperature falls."""
        return self.hottest is not None

    def at(self, progress: float) -> "Budgeted":
        """At the temperature of this progress."""
        if self.hottest is None:
            return self
        left = 1.0 - progress if self.shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
        now = self.sampling.temperature + left * (self.hottest - self.sampling.temperature)
        return replace(self, hottest=None, sampling=replace(self.sampling, temperature=now))

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        sampling = replace(self.sampling, max_tokens=self.budgets.get(task.domain, self.sampling.max_tokens))
        completions = await sampler.sample(prompt.token_ids, self.n, sampling, prompt.vectors)
        return [Group(key=task.key, trajectories=answers(task, prompt, completions, self.role))]
