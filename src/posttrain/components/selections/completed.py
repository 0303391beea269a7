"""Completions that the model writes once, when the stage begins, as the recorded completions of the tasks.

Source: the data of IRCoCo, arXiv:2401.16637 (Libolun-star/IRCoCo at 17199313): the model as it is before reinforcement
completes every prompt greedily, and these completions are learned from in every epoch, by the rollout `recorded`. Each
has the score of `reward` as its rating. They take the place of rated completions that the data has. A task whose
completions are empty, too long to be learned from or cannot be scored is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.engines import Sampler, Sampling
from posttrain.errors import AlarmStop
from posttrain.types import Rated, Task


@frozen
class Completed(Selection):
    """Replaces the rated completions of tasks by the model's own."""

    reward: Reward
    """Rates the completions."""
    n: PositiveInt = 1
    """Completions of a task; more than one are equal where sampling is greedy."""
    sampling: Sampling = Sampling(temperature=0.0)
    """How they are sampled; greedily in the release."""
    role: str = "policy"
    """The model that writes them."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that writes, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Rated completions."""
        return frozenset({"rated completions"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task its completions with their ratings."""
        groups = await sample_all(
            tasks, samplers, self.reward, role=self.role, n=self.n, sampling=self.sampling, kind=self.kind
        )
        kept = [[t for t in fitting(group, samplers[self.role]) if t is not None and t.completion] for group in groups]
        return [[[t.completion, t.score.value] for t in own if t.score and t.score.status != "error"] for own in kept]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks that have a completion. Raises `AlarmStop` where none has."""
        chosen = [
            replace(
                task,
                rated=tuple(Rated(completion=text, rating=rating) for text, rating in own),
                fields={**task.fields, "origin": [self.role] * len(own)},
            )
            for task, own in zip(tasks, measured, strict=True)
            if own
        ]
        if tasks and not chosen:
            raise AlarmStop(f"the model in the role '{self.role}' completes none of {len(tasks)} tasks by any text")
        ratings = [rated.rating for task in chosen for rated in task.rated]
        mean = sum(ratings) / max(len(ratings), 1)
        summary = f"{len(ratings)} completions of {len(chosen)} of {len(tasks)} tasks were written, mean {mean:.3f}"
        return Chosen(tasks=chosen, summary=summary)
