"""Rollouts that are sampled and scored for selections."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.engines import Sampler, Sampling, answers, sampler_of
from posttrain.errors import AlarmStop
from posttrain.types import Group, Task, Trajectory


async def sample_all(
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
        trajectories = answers(task, prompt, completions, "policy")
        return await scored(Group(key=task.key, trajectories=trajectories), reward, RewardContext(samplers=samplers))

    return list(await asyncio.gather(*map(one, tasks)))


def fitting(group: Group, sampler: Sampler) -> list[Trajectory | None]:
    """The rollouts of a group, None for one whose text is too long to imitate.

    A text may have more tokens than were sampled, where these are no valid text, for example.
    """
    task = group.trajectories[0].task
    room = sampler.context - len(sampler.prompt(task))
    return [t if len(sampler.encode_completion(task.prompt, t.completion)) <= room else None for t in group]


def values_of(group: Group) -> list[float]:
    """The scores of a group without those that failed."""
    return [t.score.value for t in group if t.score is not None and t.score.status != "error"]


def share_correct(group: Group) -> float | None:
    """The share of correct rollouts among those that could be scored; None where none could."""
    scored = [t.solved for t in group if t.score is not None and t.score.status != "error"]
    return sum(scored) / len(scored) if scored else None


def pairs_summary(rule: str, chosen: Sequence[Task], used: int, reasons: "Counter[str]", *, further: int = 0) -> str:
    """What a rule made of `used` tasks. Raises `AlarmStop` where it made no pair at all."""
    without = "; ".join(f"{number} without: {reason}" for reason, number in sorted(reasons.items()))
    if used and not chosen:
        raise AlarmStop(f"the rule '{rule}' makes no pair of any of {used} tasks: {without}")
    count = sum(len(task.preferences) for task in chosen)
    summary = f"{count} pairs by '{rule}' from {len(chosen)} of {used} tasks"
    summary += f", with {further} further rollouts" if further else ""
    return f"{summary}; {without}" if without else summary
