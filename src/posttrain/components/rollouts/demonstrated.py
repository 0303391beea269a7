"""Completions of a prompt, with demonstrations of the task as further members of the group.

A demonstration is a trajectory whose completion was not sampled (its segment's actor is ``demonstration``). It is
trained and scored like the others; filter, advantage and objective may treat it differently. The two completions of a
preference may be added too, to be ranked with those of the policy; which of them was preferred is not used.

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
    """Samples `n` completions of the prompt, and adds up to `demonstrations` completions of the data."""

    n: PositiveInt = 8
    """Completions per task."""
    demonstrations: NonNegativeInt = 1
    """Most demonstrations in a group, the first ones of the task; a task may have none."""
    shown: Literal["demonstrations", "preferences"] = "demonstrations"
    """Which completions of the data are added: demonstrations, or the chosen and the rejected one of each pair."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    role: str = "policy"
    """The model that is sampled from."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """At least one task must have a demonstration, or a pair."""
        if self.shown == "demonstrations":
            check_demonstrations(tasks, self.kind)
        elif not any(task.preferences for task in tasks):
            raise UserError(
                f"the {self.kind} rollout shows pairs, but none of the {len(tasks)} tasks has one; give columns named "
                "chosen and rejected, or set rollout.shown=demonstrations"
            )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: the completions, then the demonstrations."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        paired = [text for pair in task.preferences for text in (pair.chosen, pair.rejected)]
        shown = task.demonstrations if self.shown == "demonstrations" else paired
        segments = [demonstration_segment(task, text, prompt, sampler) for text in shown[: self.demonstrations]]
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        rollouts = answers(task, prompt, completions, self.role)
        demonstrations = [
            Trajectory(task=task, segments=(prompt, segment), stop_reason="stop", sample=self.n + i)
            for i, segment in enumerate(segments)
        ]
        return [Group(key=task.key, trajectories=(*rollouts, *demonstrations))]
