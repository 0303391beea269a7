"""A corridor with a key, by hand."""

import asyncio
from random import Random

import pytest

from posttrain.components.environments.keys import Keys
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")


def distances(environment: Keys) -> tuple[int, int]:
    """To the key and to the door, from the first observation."""
    key, door, *_ = play(environment, TASK, [])[0].text.split()
    return int(key[1:]), int(door[1:])


@pytest.mark.parametrize(("which", "oil"), [("easy", ""), ("hard", "i")])
def test_the_way(which: str, oil: str) -> None:
    environment = Keys(which=which)  # type: ignore[arg-type]
    key, door = distances(environment)
    way = "r" * key + "g" + oil + "r" * (door - key) + "o"
    _, outcomes, verdict, _ = play(environment, TASK, list(way))
    assert len(outcomes) == len(way) and outcomes[-1].done
    assert verdict is not None and verdict.solved


def test_a_rusty_key_opens_nothing_and_one_that_is_thrown_away_is_lost() -> None:
    environment = Keys(which="hard")
    key, door = distances(environment)
    rusty = "r" * key + "g" + "r" * (door - key) + "o"
    _, outcomes, verdict, _ = play(environment, TASK, list(rusty))
    assert outcomes[-1].observation.text == f"k{key - door} d0 held rusty\n" and not outcomes[-1].done
    assert verdict is not None and not verdict.solved
    _, outcomes, _, measures = play(environment, TASK, list("r" * key + "gidg"))
    assert outcomes[-1].observation.text.endswith("lost\n") and measures["regret"] == 1.0
    assert {name: measures[name] for name in ("hard", "oiled", "lost")} == dict.fromkeys(("hard", "oiled", "lost"), 1.0)


def test_both_ends_and_what_is_no_action() -> None:
    key, _ = distances(Keys())
    _, outcomes, *_ = play(Keys(horizon=3), TASK, ["l", "x", "g"])
    assert [outcome.valid for outcome in outcomes] == [True, False, True] and outcomes[-1].done
    assert outcomes[-1].observation.text.startswith(f"k{key} ") and "held" not in outcomes[-1].observation.text


async def expert(environment: Keys, key: str) -> tuple[list[str], bool]:
    """The turns of the environment's own player, and whether it succeeds."""
    turns = []
    async with environment.open(Task(key=key, prompt=""), Random(0).random) as instance:
        while True:
            turns.append(await instance.solution() or "")
            if (await instance.step(turns[-1])).done:
                verdict = instance.verdict()
                return turns, verdict is not None and verdict.solved


def test_a_flawed_expert_fails_in_hard_rooms_after_useful_turns() -> None:
    names = [str(i) for i in range(12)]
    assert all(asyncio.run(expert(Keys(which=w), name))[1] for name in names for w in ("easy", "hard"))  # type: ignore[arg-type]
    assert all(asyncio.run(expert(Keys(which="easy", flawed=True), name))[1] for name in names)
    turns, solved = asyncio.run(expert(Keys(which="hard", flawed=True), "0"))
    assert not solved and "i" in turns and turns.index("d") > turns.index("i")
