"""Trains on pairs of answers that drawn models write under drawn principles of the one preference of each task.

Source: CodeUltraFeedback, Weyssow et al. 2024, arXiv:2403.09032 (generate_responses.py): every instruction is given one
of five preferences; 4 of 14 models are drawn, and each answers under a system prompt, one random principle of the
preference. The answers are rated in one call, and a rule of `posttrain.components.pairings` pairs them (there the best
with a lower one). The pairs are learned without the principle.

A task's preference is its field ``preference``; its principles are the field ``principles`` (a list of texts), or else
ours for this preference. A principle is the system message of chat prompts, and a line before prompts that are text.
Writers are drawn without replacement, and anew once all have been drawn. Draws are functions of the seed and the task.

Differs: nothing known of how models and principles are drawn.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.pairings import Pairing, Rollouts
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, pairs_summary
from posttrain.datasets.coding_preferences import PRINCIPLES
from posttrain.engines import Sampler, Sampling, answers, sampler_of
from posttrain.errors import UserError
from posttrain.types import Group, Message, Preference, Task, Trajectory


@frozen
class Principled(Selection):
    """Replaces the pairs of tasks by those of answers under principles."""

    pairing: Pairing
    """The rule."""
    reward: Reward
    """Rates the answers of a task together."""
    writers: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)] = ("policy",)
    """Roles whose models write."""
    n: Annotated[int, Field(ge=2, le=64)] = 4
    """Answers of a task."""
    sampling: Sampling = Sampling(temperature=1.0, max_tokens=128)
    """How they are sampled."""
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
        for task in used:
            principles_of(task)
        self.reward.check(used)
        found = await asyncio.gather(*(self._one(task, samplers) for task in used))
        return [None] * len(tasks[: self.skip]) + list(found) + [None] * len(tasks[self.skip + len(used) :])

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
        return Chosen(tasks=chosen, summary=pairs_summary(self.pairing.kind, chosen, len(rows), reasons))

    async def _one(self, task: Task, samplers: Mapping[str, Sampler]) -> dict[str, Any]:
        """Write, rate and pair the answers of a task."""
        reader = sampler_of(self.writers[0], samplers, "the principled selection samples from")
        draws = reader.bind("principles", task.key)
        principles = principles_of(task)
        left, written = list[str](), list[tuple[str, str, Trajectory]]()
        for sample in range(self.n):
            left = left or list(self.writers)
            writer = left.pop(int(draws.uniform() * len(left)))
            principle = principles[int(draws.uniform() * len(principles))]
            sampler = sampler_of(writer, samplers, "the principled selection samples from").bind(task.key, sample)
            asked = under(task, principle)
            prompt = sampler.prompt(asked)
            [c] = await sampler.sample(prompt.token_ids, 1, self.sampling, prompt.vectors)
            [rollout] = answers(task, prompt, [c], "policy", first=sample)
            written.append((writer, principle, rollout))
        context = RewardContext(samplers=samplers)
        group = await scored(Group(key=task.key, trajectories=tuple(t for *_, t in written)), self.reward, context)
        kept = [i for i, t in enumerate(fitting(group, reader)) if t is not None]

        async def scorer(other: Group) -> Group:
            return await scored(other, self.reward, context)

        found = await self.pairing.pair(
            Rollouts(
                task=task,
                trajectories=tuple(group.trajectories[i] for i in kept),
                sampler=reader.bind("pairs", task.key),
                scorer=scorer,
                writers=tuple(f"{written[i][0]}: {written[i][1]}" for i in kept),
                samplers=samplers,
            )
        )
        return {"pairs": [asdict(pair) for pair in found.pairs], "reason": found.reason}


def principles_of(task: Task) -> Sequence[str]:
    """The principles that a writer may get. Raises `UserError` for a task without any."""
    own = task.fields.get("principles")
    if isinstance(own, (list, tuple)) and own and all(isinstance(text, str) for text in own):
        return own
    name = str(task.fields.get("preference", ""))
    if name not in PRINCIPLES:
        raise UserError(
            f"task '{task.key}' has no principles to write under: give a column 'principles' (a list of texts), or one "
            f"named 'preference'; here it is '{name}', {nearest(name, PRINCIPLES)}"
        )
    return PRINCIPLES[name]


def under(task: Task, principle: str) -> Task:
    """The task under a principle: as the system message, or as a line before text."""
    if isinstance(task.prompt, str):
        return replace(task, prompt=f"{principle}\n{task.prompt}")
    return replace(task, prompt=(Message(role="system", content=principle), *task.prompt))
