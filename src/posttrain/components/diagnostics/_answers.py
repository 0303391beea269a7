"""Sampled answers to tasks as groups, for diagnostics that score or read them."""

import asyncio
from collections.abc import Sequence

from posttrain.components.rewards import Reward
from posttrain.engines import Sampling, Server
from posttrain.errors import UserError
from posttrain.types import Group, Segment, Task, Trajectory


def check_roles(*rewards: Reward) -> None:
    """Prepare rewards of a diagnostic. Raises `UserError` for one that requires models of a recipe."""
    roles = sorted(frozenset[str]().union(*(reward.roles for reward in rewards)))
    if roles:
        raise UserError(
            f"a reward requires the role '{roles[0]}', but a diagnostic has one model only; take a reward that "
            "requires no role"
        )
    for reward in rewards:
        reward.prepare()


async def answer_all(server: Server, name: str, tasks: Sequence[Task], n: int, sampling: Sampling) -> list[Group]:
    """A group of `n` answers for each task; `name` is the diagnostic's, on which the draws depend."""
    return list(await asyncio.gather(*(answer(server, name, task, n, sampling) for task in tasks)))


async def answer(server: Server, name: str, task: Task, n: int, sampling: Sampling) -> Group:
    """`n` answers to a task."""
    sampler = server.bind(name, task.key)
    prompt = sampler.prompt(task)
    if len(prompt.token_ids) >= sampler.context:
        raise UserError(
            f"task {task.key}: the prompt has {len(prompt.token_ids)} tokens, which leaves no room in the model's "
            f"context of {sampler.context}; leave it out"
        )
    completions = await sampler.sample(prompt.token_ids, n, sampling, prompt.vectors)
    rollouts = tuple(
        Trajectory(
            task=task,
            segments=(
                prompt,
                Segment(actor="policy", token_ids=c.token_ids, trained=True, logp=c.logp, text=c.text),
            ),
            stop_reason=c.stop_reason,
            sample=i,
        )
        for i, c in enumerate(completions)
    )
    return Group(key=task.key, trajectories=rollouts)
