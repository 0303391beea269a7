"""Samples and scores rollouts, and filters groups."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posttrain.components.filters import Dropped, Filter
from posttrain.components.rewards import Reward, RewardContext, judged
from posttrain.components.rollouts import Rollout
from posttrain.engines import Sampler
from posttrain.errors import AlarmStop
from posttrain.stages.record import StepRecord
from posttrain.types import Group, Task


async def collect_groups(
    tasks: Sequence[Task],
    rollout: Rollout,
    reward: Reward,
    samplers: Sequence[Mapping[str, Sampler]],
    context: RewardContext,
) -> list[Group]:
    """Attempt and judge every task, all at once; the groups come back in the order of the tasks."""

    async def one(task: Task, bound: Mapping[str, Sampler]) -> list[Group]:
        own = replace(context, samplers=bound)
        return await rollout.collect_judged(task, bound, lambda group: judged(group, reward, own))

    collected = await asyncio.gather(*(one(task, bound) for task, bound in zip(tasks, samplers, strict=True)))
    return [group for groups in collected for group in groups]


def set_aside_failed(groups: Sequence[Group]) -> tuple[list[Group], list[Dropped]]:
    """Take out the trajectories whose grader failed: they are neither right nor wrong, and are never learned from."""
    kept, dropped = [], []
    for group in groups:
        sound = tuple(t for t in group if t.score is not None and t.score.status != "error")
        failed = tuple(t for t in group if t.score is None or t.score.status == "error")
        if failed:
            dropped.append(Dropped(group=replace(group, trajectories=failed), reason="grader error"))
        if sound:
            kept.append(replace(group, trajectories=sound))
    return kept, dropped


def filter_groups(
    filters: Mapping[str, Filter], states: dict[str, Mapping[str, Any]], groups: Sequence[Group], record: StepRecord
) -> list[Group]:
    """The groups to learn from; what is left out goes into the record with its reason."""
    kept, dropped = set_aside_failed(groups)
    for name, member in filters.items():
        states[name], kept, more = member(states[name], kept)
        dropped += more
    for offset, item in enumerate(dropped):
        record.drop(item.group, item.reason, index=len(kept) + offset)
    taught = [any(t.demonstrated for t in group) for group in kept]
    if any(t.demonstrated for group in groups for t in group):
        record.metrics["demonstrated"] = float(np.mean(taught)) if taught else 0.0
    return kept


def stop_if_grading_fails(groups: Sequence[Group], bound: float) -> None:
    """Raise `AlarmStop` with the evidence when the share of failed judgements reaches `bound`."""
    scores = [t.score for group in groups for t in group if t.score is not None]
    failed = [s for s in scores if s.status == "error"]
    if scores and len(failed) / len(scores) >= bound:
        raise AlarmStop(
            f"{len(failed)} of {len(scores)} judgements of this step failed, so there is nothing sound to learn from. "
            f"The first failure: {failed[0].explanation}. Mend the reward, or the world, and resume, or allow more "
            "with max_grader_errors."
        )


def learned_by(role: str, groups: Sequence[Group]) -> list[Group]:
    """The attempts that a role learns from."""
    own = [replace(group, trajectories=tuple(t for t in group if role in t.learners)) for group in groups]
    return [group for group in own if len(group)]


def unaided(groups: Sequence[Group]) -> list[Group]:
    """The attempts that the policy made all by itself."""
    own = [replace(group, trajectories=tuple(t for t in group if not t.given)) for group in groups]
    return [group for group in own if len(group)]
