"""Sampled answers to tasks as groups, for diagnostics that score or read them."""

import asyncio
from collections.abc import Sequence

import numpy as np

from posttrain.components.rewards import Reward
from posttrain.engines import Sampler, Sampling, Server
from posttrain.errors import UserError
from posttrain.types import Completion, Group, IntArray, Segment, Task, Trajectory


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
    none = np.zeros(0, np.int64)
    rollouts = (trajectory_of(task, prompt, sampler, none, c, i) for i, c in enumerate(completions))
    return Group(key=task.key, trajectories=tuple(rollouts))


def trajectory_of(
    task: Task, prompt: Segment, sampler: Sampler, before: IntArray, completion: Completion, sample: int
) -> Trajectory:
    """An answer, whose first tokens `before` may have been given to the completion's prompt."""
    logp = np.concatenate([np.zeros(len(before), np.float32), completion.logp]).astype(np.float32)
    text = (sampler.decode(before) if len(before) else "") + completion.text
    ids = np.concatenate([before, completion.token_ids]).astype(np.int64)
    own = Segment(actor="policy", token_ids=ids, trained=True, logp=logp, text=text)
    return Trajectory(task=task, segments=(prompt, own), stop_reason=completion.stop_reason, sample=sample)
