"""Completions of a prompt with demonstrations of the task beside them, as further members of the group.

A demonstration is a trajectory whose completion nobody sampled (its segment's actor is ``demonstration``): it is
trained and judged as the others are. What is made of it is up to filter, advantage and objective.

Source: groups of on-policy and off-policy trajectories, Yan et al. 2025 (LUFFY), arXiv:2504.14945.
"""

from collections.abc import Mapping, Sequence

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.engines import Sampler, Sampling
from posttrain.rollouts import Rollout
from posttrain.rollouts._segments import (
    answers,
    check_demonstrations,
    demonstration_segment,
    prompt_segment,
    sampler_of,
)
from posttrain.types import Group, Task, Trajectory


@frozen
class Demonstrated(Rollout):
    """`n` completions of the task's prompt, and up to `demonstrations` of the task's own."""

    n: PositiveInt = 8
    """Completions per task."""
    demonstrations: NonNegativeInt = 1
    """Most demonstrations in a group, the first ones of the task; a task without any is attempted all the same."""
    sampling: Sampling = Sampling()
    """How each completion is drawn."""
    role: str = "policy"
    """The model that writes."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Some task must have a demonstration."""
        check_demonstrations(tasks, self.kind)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: the attempts, then the demonstrations."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        shown = task.demonstrations[: self.demonstrations]
        segments = [demonstration_segment(task, text, prompt, sampler) for text in shown]
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        attempts = answers(task, prompt, completions, self.role)
        demonstrations = [
            Trajectory(task=task, segments=(prompt, segment), stop_reason="stop", sample=self.n + i)
            for i, segment in enumerate(segments)
        ]
        return [Group(key=task.key, trajectories=(*attempts, *demonstrations))]
