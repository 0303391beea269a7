"""Completions of a prompt with demonstrations of the task beside them, as further members of the group.

A demonstration is a trajectory whose completion nobody sampled (its segment's actor is ``demonstration``): it is
trained and judged as the others are. What is made of it is up to filter, advantage and objective. The two completions
of a preference may stand there too, to be ranked with what the policy writes: which of them was preferred is forgotten.

Source: groups of on-policy and off-policy trajectories, Yan et al. 2025 (LUFFY), arXiv:2504.14945; a response of the
policy's beside the pair of the data, Zhang et al. 2024 (SELM), arXiv:2405.19332.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import (
    answers,
    check_demonstrations,
    demonstration_segment,
    prompt_segment,
    sampler_of,
)
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Group, Task, Trajectory


@frozen
class Demonstrated(Rollout):
    """`n` completions of the task's prompt, and up to `demonstrations` of the task's own."""

    n: PositiveInt = 8
    """Completions per task."""
    demonstrations: NonNegativeInt = 1
    """Most demonstrations in a group, the first ones of the task; a task without any is attempted all the same."""
    shown: Literal["demonstrations", "preferences"] = "demonstrations"
    """Which completions of the task's own: those worth imitating, or the chosen and the rejected one of each pair."""
    sampling: Sampling = Sampling()
    """How each completion is drawn."""
    role: str = "policy"
    """The model that writes."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Some task must have a demonstration, or a pair."""
        if self.shown == "demonstrations":
            check_demonstrations(tasks, self.kind)
        elif not any(task.preferences for task in tasks):
            raise UserError(
                f"the {self.kind} rollout shows pairs, but none of the {len(tasks)} tasks has one; give columns named "
                "chosen and rejected, or set rollout.shown=demonstrations"
            )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: the attempts, then the demonstrations."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        paired = [text for pair in task.preferences for text in (pair.chosen, pair.rejected)]
        shown = task.demonstrations if self.shown == "demonstrations" else paired
        segments = [demonstration_segment(task, text, prompt, sampler) for text in shown[: self.demonstrations]]
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        attempts = answers(task, prompt, completions, self.role)
        demonstrations = [
            Trajectory(task=task, segments=(prompt, segment), stop_reason="stop", sample=self.n + i)
            for i, segment in enumerate(segments)
        ]
        return [Group(key=task.key, trajectories=(*attempts, *demonstrations))]
