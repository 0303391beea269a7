"""Attempts at tasks, sampled and scored, for selections that look at them."""

import asyncio
from collections.abc import Mapping, Sequence

from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.types import Group, Segment, Task, Trajectory


async def attempted(
    tasks: Sequence[Task],
    samplers: Mapping[str, Sampler],
    reward: Reward,
    *,
    role: str,
    n: int,
    sampling: Sampling,
    kind: str,
) -> list[Group]:
    """For each task `n` scored completions by the role's model; `kind` is the selection, for messages."""
    sampler = sampler_of(role, samplers, f"the {kind} selection samples from")

    async def one(task: Task) -> Group:
        prompt = sampler.prompt(task)
        completions = await sampler.sample(prompt.token_ids, n, sampling, prompt.vectors)
        trajectories = tuple(
            Trajectory(
                task=task,
                segments=(
                    prompt,
                    Segment(
                        actor="policy",
                        token_ids=c.token_ids,
                        logp=c.logp,
                        trained=True,
                        text=c.text,
                        version=c.version,
                        vectors=c.vectors,
                    ),
                ),
                stop_reason=c.stop_reason,
                sample=sample,
            )
            for sample, c in enumerate(completions)
        )
        return await scored(Group(key=task.key, trajectories=trajectories), reward, RewardContext(samplers=samplers))

    return list(await asyncio.gather(*map(one, tasks)))


def values_of(group: Group) -> list[float]:
    """The scores of a group without those that failed."""
    return [t.score.value for t in group if t.score is not None and t.score.status != "error"]
