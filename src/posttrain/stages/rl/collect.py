"""Sampling and scoring of rollouts, and filtering of groups."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posttrain.components.filters import Dropped, Filter
from posttrain.components.rewards import Reward, RewardContext, scored
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
    """Sample and score the rollouts of all tasks concurrently; returns the groups in the order of the tasks."""

    async def one(place: int, task: Task, bound: Mapping[str, Sampler]) -> list[Group]:
        own = replace(context, samplers=bound, place=context.place + place)
        return await rollout.collect_scored(task, bound, lambda group: scored(group, reward, own))

    pairs = enumerate(zip(tasks, samplers, strict=True))
    collected = await asyncio.gather(*(one(place, task, bound) for place, (task, bound) in pairs))
    return [group for groups in collected for group in groups]


def split_failed(groups: Sequence[Group]) -> tuple[list[Group], list[Dropped]]:
    """Separate the trajectories that could not be scored. They have no outcome and are never learned from."""
    kept, dropped = [], []
    for group in groups:
        valid = tuple(t for t in group if t.score is not None and t.score.status != "error")
        failed = tuple(t for t in group if t.score is None or t.score.status == "error")
        if failed:
            dropped.append(Dropped(group=replace(group, trajectories=failed), reason="grader error"))
        if valid:
            kept.append(replace(group, trajectories=valid))
    return kept, dropped


def filter_groups(
    filters: Mapping[str, Filter], states: Mapping[str, Mapping[str, Any]], groups: Sequence[Group]
) -> tuple[dict[str, Mapping[str, Any]], list[Group], list[Dropped]]:
    """The filters' new states, the groups to learn from, and the others."""
    kept, dropped = split_failed(groups)
    states = dict(states)
    for name, member in filters.items():
        states[name], kept, more = member(states[name], kept)
        dropped += more
    return states, kept, dropped


def record_filtered(
    record: StepRecord, groups: Sequence[Group], kept: Sequence[Group], dropped: Sequence[Dropped]
) -> None:
    """Record the dropped groups with the reason, and the share of groups with demonstrations."""
    for offset, item in enumerate(dropped):
        record.drop(item.group, item.reason, index=len(kept) + offset)
    demonstrated = [any(t.demonstrated for t in group) for group in kept]
    if any(t.demonstrated for group in groups for t in group):
        record.metrics["demonstrated"] = float(np.mean(demonstrated)) if demonstrated else 0.0


def describe_failures(groups: Sequence[Group]) -> str:
    """How many rollouts could not be scored, and the first reason; empty if all could."""
    scores = [t.score for group in groups for t in group if t.score is not None]
    failed = [s for s in scores if s.status == "error"]
    if not failed:
        return ""
    return f"{len(failed)} of {len(scores)} rollouts could not be scored. The first failure: {failed[0].explanation}"


def stop_if_grading_fails(groups: Sequence[Group], bound: float) -> None:
    """Raise `AlarmStop` when the share of rollouts that could not be scored reaches `bound`."""
    scores = [t.score for group in groups for t in group if t.score is not None]
    failed = [s for s in scores if s.status == "error"]
    if scores and len(failed) / len(scores) >= bound:
        raise AlarmStop(
            f"{len(failed)} of {len(scores)} rollouts of this step could not be scored, so it is not learned from. "
            f"The first failure: {failed[0].explanation}. Fix the reward or the environment and resume, or allow more "
            "failures with max_grader_errors."
        )


def learned_by(role: str, groups: Sequence[Group]) -> list[Group]:
    """The rollouts that a role learns from, by group."""
    own = [replace(group, trajectories=tuple(t for t in group if role in t.learners)) for group in groups]
    return [group for group in own if len(group)]


def unaided(groups: Sequence[Group]) -> list[Group]:
    """The rollouts without demonstrated or recorded tokens, by group."""
    own = [replace(group, trajectories=tuple(t for t in group if not t.given)) for group in groups]
    return [group for group in own if len(group)]
