"""Trains on pairs that a rule makes of the models' own scored rollouts, or of the rated texts of the data.

The rollouts are sampled once, when the stage begins. The rule is a `posttrain.components.pairings`: which of them is
preferred to which, cut where, with which numbers. The pairs take the place of those that the data has; where they are
from is in the field ``origin`` of the task. A task without a pair is left out, and the note of the stage counts the
reasons. Where no task has any, as where a model is always right, the run stops with this reason.

Source: the pair builders of arXiv:2402.05000, arXiv:2406.14532, arXiv:2403.09032 and arXiv:2502.10391; see the rules.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.pairings import Paired as Result
from posttrain.components.pairings import Pairing, Rollouts
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.rollouts import DataRating
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, pairs_summary, sample_all
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.errors import UserError
from posttrain.types import Group, Preference, Rated, Segment, Task, Trajectory


@frozen
class Paired(Selection):
    """Replaces the pairs of tasks by those of a rule."""

    pairing: Pairing
    """The rule."""
    reward: Reward
    """Scores the rollouts; status ``ok`` is correct."""
    n: Annotated[int, Field(ge=0, le=256)] = 8
    """Rollouts of a task by each writer; 0 takes the rated texts of the data in their place."""
    writers: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)] = ("policy",)
    """Roles whose models write them."""
    temperature: NonNegativeFloat = 1.0
    """Temperature of the rollouts."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""
    skip: NonNegativeInt = 0
    """Number of tasks at the front that are left out."""
    first: PositiveInt | None = None
    """Number of tasks that are used, from the first that is not skipped; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The writers, and those of the reward and the rule."""
        return frozenset(self.writers) | self.reward.roles | self.pairing.roles

    @property
    def writes(self) -> frozenset[str]:
        """Pairs."""
        return frozenset({"preferences"})

    @property
    def gives(self) -> frozenset[str]:
        """Those of the rule."""
        return self.pairing.gives

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task its pairs, or the reason why it has none; None for tasks that are not used."""
        end = None if self.first is None else self.skip + self.first
        used = tasks[self.skip : end]
        self._check(used)
        context = RewardContext(samplers=samplers)
        reader = sampler_of(self.writers[0], samplers, "the paired selection samples from")
        groups: Sequence[Sequence[tuple[str, Trajectory]]] = [()] * len(used)
        if self.pairing.needs_rollouts:
            groups = await (self._given(used, reader, context) if self.n == 0 else self._written(used, samplers))

        async def scorer(group: Group) -> Group:
            return await scored(group, self.reward, context)

        async def one(task: Task, own: Sequence[tuple[str, Trajectory]]) -> Result:
            return await self.pairing.pair(
                Rollouts(
                    task=task,
                    trajectories=tuple(t for _, t in own),
                    sampler=reader.bind("pairs", task.key),
                    scorer=scorer,
                    writers=tuple(writer for writer, _ in own),
                    samplers=samplers,
                )
            )

        found = await asyncio.gather(*(one(task, own) for task, own in zip(used, groups, strict=True)))
        rows = [
            {"pairs": [asdict(pair) for pair in f.pairs], "reason": f.reason, "rollouts": f.rollouts} for f in found
        ]
        return [None] * len(tasks[: self.skip]) + rows + [None] * len(tasks[self.skip + len(used) :])

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with their pairs. Raises `AlarmStop` where there is none at all."""
        chosen = []
        for task, row in zip(tasks, measured, strict=True):
            if row is not None and row["pairs"]:
                pairs = tuple(Preference(**pair) for pair in row["pairs"])
                origin = [text for pair in pairs for text in pair.fields["origin"]]
                chosen.append(replace(task, preferences=pairs, fields={**task.fields, "origin": origin}))
        rows = [row for row in measured if row is not None]
        reasons = Counter(row["reason"] for row in rows if not row["pairs"])
        further = sum(row["rollouts"] for row in rows)
        summary = pairs_summary(self.pairing.kind, chosen, len(rows), reasons, further=further)
        return Chosen(tasks=chosen, summary=summary)

    def _check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a column that the rule reads and a task lacks."""
        for task in tasks:
            for name in self.pairing.reads:
                if name not in task.fields:
                    raise UserError(
                        f"task {task.key}: the rule '{self.pairing.kind}' reads the column '{name}', which this task "
                        f"lacks; {nearest(name, task.fields)}"
                    )
            if self.n == 0 and self.pairing.needs_rollouts and not task.rated:
                raise UserError(
                    f"task {task.key}: n=0 makes pairs of the rated texts of the data, and this task has none; give "
                    "columns named completion and rating (for several rows of a prompt: tasks.kind=gathered)"
                )

    async def _written(
        self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]
    ) -> list[list[tuple[str, Trajectory]]]:
        """For each task its scored rollouts, each with its writer; those that are too long to imitate are left out."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        own: list[list[tuple[str, Trajectory]]] = [[] for _ in tasks]
        for place, writer in enumerate(self.writers):
            groups = await sample_all(
                tasks, samplers, self.reward, role=writer, n=self.n, sampling=sampling, kind=self.kind
            )
            for rows, group in zip(own, groups, strict=True):
                kept = fitting(group, samplers[writer])
                rows += [(writer, replace(t, sample=place * self.n + t.sample)) for t in kept if t is not None]
        return own

    async def _given(
        self, tasks: Sequence[Task], reader: Sampler, context: RewardContext
    ) -> list[list[tuple[str, Trajectory]]]:
        """For each task the rated texts of the data, scored by the reward."""

        def one(task: Task, rated: Rated, sample: int) -> Trajectory:
            ids = reader.encode_completion(task.prompt, rated.completion)
            segment = Segment(actor="recorded", token_ids=ids, trained=True, text=rated.completion)
            return Trajectory(
                task=task,
                segments=(reader.prompt(task), segment),
                stop_reason="stop",
                sample=sample,
                facts=(DataRating(rating=rated.rating),),
            )

        groups = [
            Group(key=task.key, trajectories=tuple(one(task, rated, i) for i, rated in enumerate(task.rated)))
            for task in tasks
        ]
        found = await asyncio.gather(*(scored(group, self.reward, context) for group in groups))
        return [[("data", t) for t in group] for group in found]
