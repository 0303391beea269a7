"""Groups that are not finished in a step, and go on in the next one.

A rollout may return groups without scores (`posttrain.components.rollouts.partial`). They are in the checkpoint until
they are finished; those that the last step leaves are dropped.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.rollouts import Rollout
from posttrain.engines import Sampler, wait_for
from posttrain.stages import Models, StageContext
from posttrain.stages.rl.waiting import pack_groups, unpack_groups
from posttrain.types import Group


def gone_on(
    memory: dict[str, Any],
    rollout: Rollout,
    reward: Reward,
    models: Models,
    context: StageContext,
    scoring: RewardContext,
) -> list[Group]:
    """The groups that earlier steps began, with what this step samples of them; they leave the memory."""
    begun = unpack_groups(memory.pop("begun", ()), context.tasks, age=None)
    samplers = [context.samplers(models, scoring.step, "begun", place) for place in range(len(begun))]

    async def one(place: int, group: Group, bound: Mapping[str, Sampler]) -> list[Group]:
        own = replace(scoring, samplers=bound, place=place)
        return await rollout.go_on(group, bound, lambda group: scored(group, reward, own))

    async def every() -> list[Group]:
        pairs = enumerate(zip(begun, samplers, strict=True))
        found = await asyncio.gather(*(one(place, group, bound) for place, (group, bound) in pairs))
        return [group for groups in found for group in groups]

    return wait_for(every()) if begun else []


def finished(memory: dict[str, Any], groups: Sequence[Group]) -> list[Group]:
    """The groups with scores; the others go into the memory."""
    begun = [group for group in groups if any(t.score is None for t in group)]
    if begun:
        memory["begun"] = [*memory.get("begun", ()), *pack_groups(begun)]
    return [group for group in groups if all(t.score is not None for t in group)]
