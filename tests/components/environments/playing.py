"""What the tests of environments share: playing a list of actions."""

import asyncio
from collections.abc import Sequence
from random import Random

from posttrain.components.environments import Contained, Environment, Observation, Outcome, Verdict
from posttrain.types import Task


async def _play(
    environment: Environment, task: Task, actions: Sequence[str], seed: int
) -> tuple[Observation, list[Outcome], Verdict | None, dict[str, float]]:
    async with environment.open(task, Random(seed).random) as instance:
        assert isinstance(instance, Contained)
        first = instance.begin()
        outcomes = []
        for action in actions:
            outcomes.append(await instance.step(action))
            if outcomes[-1].done:
                break
        return first, outcomes, instance.verdict(), instance.measures()


def play(
    environment: Environment, task: Task, actions: Sequence[str], seed: int = 0
) -> tuple[Observation, list[Outcome], Verdict | None, dict[str, float]]:
    """What is seen first, the outcome of each action until the end, the verdict and the measures."""
    return asyncio.run(_play(environment, task, actions, seed))


def verdict_of(environment: Environment, task: Task, actions: Sequence[str]) -> Verdict:
    *_, verdict, _ = play(environment, task, actions)
    assert verdict is not None
    return verdict
