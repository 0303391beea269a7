"""Whether an environment repeats, tried with one short episode that is played twice."""

import asyncio
import threading
from random import Random
from typing import Any

from posttrain.components.environments import Environment, EnvironmentFailed
from posttrain.types import Task


def first_difference(environment: Environment, task: Task, turns: int) -> int | None:
    """The number of the first answer that differs when an episode is played again with the same seed and actions; 0 is
    the first observation. None where all are the same, or where the environment fails both times.

    The turns are the solver's, or random legal actions; without either only the first observation is compared.
    """
    found: list[list[Any]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.extend(asyncio.run(_twice(environment, task, turns)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="posttrain-repeat")  # a loop may run in this one
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    one, other = found
    if one == other:
        return None
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(map(len, found)))


async def _twice(environment: Environment, task: Task, turns: int) -> list[list[Any]]:
    # One after the other: what an episode leaves in its process is there for the next one.
    return [await _story(environment, task, turns) for _ in range(2)]


async def _story(environment: Environment, task: Task, turns: int) -> list[Any]:
    """What the environment answers, as plain values; it ends with a failure."""
    rng, story = Random(0), list[Any]()
    try:
        async with environment.open(task, Random(0).random) as instance:
            seen = instance.begin()
            story.append((seen.text, seen.legal))
            for _ in range(turns):
                text = await instance.solution()
                if text is None and not seen.legal:
                    break
                outcome = await instance.step(rng.choice(seen.legal or ()) if text is None else text)
                seen = outcome.observation
                story.append((text, seen.text, seen.legal, outcome.reward, outcome.done, outcome.truncated))
                if outcome.done:
                    break
    except EnvironmentFailed:
        story.append("failed")
    return story
