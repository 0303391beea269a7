"""Preconditions by hand, and the player's shortest way."""

import asyncio

import pytest

from posttrain.components.environments.workshop import Workshop
from posttrain.types import Task
from tests.components.environments.playing import play


def task_with(state: str) -> Task:
    """A task whose workshop begins so."""
    for number in range(100):
        task = Task(key=str(number), prompt="")
        if play(Workshop(), task, [])[0].text.startswith(state):
            return task
    raise AssertionError(state)


DARK = task_with("door:shut light:off wood:no saw:no cut:no glue:no ")


@pytest.mark.parametrize(
    ("done", "action", "works"),
    [
        ([], "wood", False),
        (["door"], "wood", True),
        ([], "saw", False),
        (["light"], "saw", True),
        (["door", "wood"], "cut", False),
        (["light", "saw"], "cut", False),
        (["door", "wood", "light", "saw"], "cut", True),
        (["door", "wood", "light", "saw"], "glue", False),
        (["door", "wood", "light", "saw", "cut"], "paint", False),
        (["door", "wood", "light", "saw", "cut"], "glue", True),
        (["door"], "door", True),
        ([], "sing", False),
    ],
)
def test_preconditions(done: list[str], action: str, works: bool) -> None:
    last = play(Workshop(), DARK, [*done, action])[1][-1]
    assert last.observation.text.startswith("fails ") is not works
    assert last.valid is (action != "sing") and last.observation.state_key in last.observation.text


def test_the_goal_and_the_horizon() -> None:
    every = ["door", "light", "wood", "saw", "cut", "glue", "paint"]
    _, outcomes, verdict, measures = play(Workshop(), DARK, every)
    assert (
        outcomes[-1].done
        and verdict is not None
        and verdict.solved
        and measures == {"actions": 7.0, "failed": 0.0, "regret": 0.0}
    )
    _, outcomes, verdict, measures = play(Workshop(horizon=3), DARK, ["cut"] * 5)
    assert len(outcomes) == 3 and verdict is not None and not verdict.solved and measures["failed"] == 3.0


async def length(task: Task) -> int:
    instance = Workshop().instance(task, lambda: 0.0)
    for turn in range(10):
        if (await instance.step(str(await instance.solution()))).done:
            return turn + 1
    raise AssertionError("the player finds no end")


def test_the_player_takes_the_shortest_way() -> None:
    assert asyncio.run(length(DARK)) == 7
    assert asyncio.run(length(task_with("door:open light:on"))) == 5
