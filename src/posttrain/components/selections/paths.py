"""Imitates the right paths of a search: what the model finds with help becomes its demonstrations.

Source: the first phase of Reinforced Functional Token Tuning, Zhang et al. 2025, arXiv:2502.13389: a tree search of 16
rollouts over tagged steps; paths with the right answer are imitated, among them those with a wrong step that a later
one repairs.

The search runs once for each task, when the stage begins, with the reward of the selection. Equal texts are one path.
Where the search has a grammar, a right path is one that the grammar allows. Tasks without a right path are left out.

Differs: how the release selects paths is not in its code. Here they are the first that are found, and if a right one
has a step of a kind in `prefer`, one such is among them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.search import Search
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting
from posttrain.datasets.grammars import Grammar
from posttrain.engines import Sampler
from posttrain.types import Group, Task


@frozen
class Paths(Selection):
    """Replaces the demonstrations of tasks by right paths of a search."""

    search: Search
    """How each task is searched."""
    reward: Reward
    """Scores the paths; status ``ok`` is right."""
    most: Annotated[int, Field(ge=1, le=256)] = 2
    """Most paths of one task."""
    first: PositiveInt | None = None
    """Number of tasks that are searched, from the first; the others are left out. None takes all."""
    prefer: tuple[str, ...] = ()
    """Tags, one of which is in one of the chosen paths where a right path has it; such as that of repairs."""

    @property
    def roles(self) -> frozenset[str]:
        """Those of the search and of the reward."""
        return self.search.roles | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Demonstrations."""
        return frozenset({"demonstrations"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the number of its paths, and the texts of the right ones; None for the others."""
        chosen = tasks[: self.first]
        found = await asyncio.gather(*(self._paths(task, samplers) for task in chosen))
        return [*found, *[None] * (len(tasks) - len(chosen))]

    async def _paths(self, task: Task, samplers: Mapping[str, Sampler]) -> dict[str, Any]:
        """The right paths of one task."""
        bound = {role: sampler.bind(self.kind, task.key) for role, sampler in samplers.items()}
        context = RewardContext(samplers=bound)

        async def score(group: Group) -> Group:
            return await scored(group, self.reward, context)

        found = await self.search.search(task, bound, score if self.search.uses_rewards else None)
        group = Group(key=task.key, trajectories=found.trajectories)
        group = group if self.search.uses_rewards else await score(group)
        grammar = getattr(self.search, "grammar", None)
        texts: dict[str, int] = {}
        for trajectory in fitting(group, bound["policy"]):
            if trajectory is None or not trajectory.solved:
                continue
            if isinstance(grammar, Grammar) and grammar.read(trajectory.completion).fault:
                continue
            texts.setdefault(trajectory.completion, trajectory.sample)
        return {"paths": len({t.completion for t in group}), "right": [[n, text] for text, n in texts.items()]}

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with their right paths, in their order."""
        rows = [row for row in measured if row is not None]
        kept = []
        for task, row in zip(tasks, measured, strict=True):
            if row is None or not row["right"]:
                continue
            taken = self._taken(row["right"])
            fields = {**task.fields, "origin": [{"writer": "policy", "path": number} for number, _ in taken]}
            kept.append(replace(task, demonstrations=tuple(text for _, text in taken), fields=fields))
        texts = [text for task in kept for text in task.demonstrations]
        preferred = f", {sum(map(self._has, texts))} of them with {' or '.join(self.prefer)}" if self.prefer else ""
        return Chosen(
            tasks=kept,
            summary=(
                f"{len(kept)} of {len(rows)} tasks have a right path: {sum(len(row['right']) for row in rows)} of "
                f"{sum(row['paths'] for row in rows)} different paths are right, and {len(texts)} are imitated"
                f"{preferred}"
            ),
        )

    def _taken(self, right: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """The first of the right paths; one that is preferred takes the last place where no other is."""
        taken = list(right[: self.most])
        others = [path for path in right[self.most :] if self._has(path[1])]
        if others and not any(self._has(text) for _, text in taken):
            taken[-1] = others[0]
        return taken

    def _has(self, text: str) -> bool:
        """Whether a path has a step of a preferred kind."""
        return any(f"<{tag}>" in text for tag in self.prefer)
