"""Completions of a task, and of a copy of it whose events stand in another order, which are not learned from.

Source: TimeHC-RL, arXiv:2505.24500, of which no code is published; the sizes are those of the method that it builds on,
Video-R1 (arXiv:2503.21776, its release): half as many completions of the copy as of the task.

The copy is the text in the field ``shuffled`` of a task; of several texts one is drawn in each step. Both are scored by
the same reward, against the same answer. The share of correct completions of the copy is known to each rollout of the
task (`Shuffled`). A task without the field, whose order does not matter, has no copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer, Shuffled
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Group, Task, Trajectory

FIELD = "shuffled"


@frozen
class ShuffledCopies(Rollout):
    """Samples `n` completions of the prompt, and `copies` of its shuffled copy."""

    n: PositiveInt = 8
    """Completions of the task, which are learned from."""
    copies: PositiveInt = 4
    """Completions of the copy."""
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

    def check(self, tasks: Sequence[Task]) -> None:
        """Some tasks must have a copy, and copies must be texts."""
        for task in tasks:
            if not all(isinstance(text, str) and text for text in copies_of(task)):
                raise UserError(
                    f"field '{FIELD}' of task {task.key} is {task.fields[FIELD]!r:.80}; it must be the prompt with its "
                    "events in another order, or a list of such texts"
                )
        if tasks and not any(copies_of(task) for task in tasks):
            raise UserError(
                f"the shuffled rollout needs copies of prompts with their events in another order, and none of the "
                f"{len(tasks)} tasks has a field '{FIELD}'; add that column, or take the rollout 'independent'"
            )

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """The group of the task, and that of its copy, whose tokens are not trained."""
        sampler = sampler_of(self.role, samplers)
        texts = copies_of(task)
        text = texts[int(sampler.uniform() * len(texts))] if texts else None
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        group = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        if text is None:
            return [group]
        copy = await scorer(await self._copied(replace(task, prompt=text), sampler))
        correct = [t.score.status == "ok" for t in copy if t.score is not None and t.score.status != "error"]
        if not correct:
            return [group, copy]
        fact = Shuffled(accuracy=sum(correct) / len(correct))
        known = tuple(replace(trajectory, facts=(*trajectory.facts, fact)) for trajectory in group)
        return [replace(group, trajectories=known), copy]

    async def _copied(self, task: Task, sampler: Sampler) -> Group:
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.copies, self.sampling, prompt.vectors)
        trajectories = tuple(
            Trajectory(
                task=task,
                segments=(prompt, sampled_segment(completion, self.role, trained=False)),
                stop_reason=completion.stop_reason,
                sample=self.n + place,
            )
            for place, completion in enumerate(completions)
        )
        return Group(key=f"{task.key}/{FIELD}", trajectories=trajectories)


def copies_of(task: Task) -> list[str]:
    """The copies of a task with its events in another order."""
    found = task.fields.get(FIELD)
    if found is None:
        return []
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]
