"""A lock, by hand."""

import asyncio
from random import Random

import pytest

from posttrain.components.environments.lock import Lock
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")


def test_only_the_whole_combination_opens_it_and_nothing_is_shown_before() -> None:
    lock = Lock()
    way = list(lock.combination)
    assert len(way) == 3 and set(way) <= set("abcd")
    first, outcomes, verdict, measures = play(lock, TASK, way)
    assert first.text == "turn 1\n" and first.legal == ("a", "b", "c", "d")
    assert [o.observation.text for o in outcomes] == ["turn 2\n", "turn 3\n", "turn 4\n"]
    assert [o.done for o in outcomes] == [False, False, True] and all(o.reward == 0 for o in outcomes)
    assert verdict is not None and verdict.solved and measures == {"right": 3.0, "regret": 0.0}
    other = "b" if way[1] != "b" else "c"
    _, seen, verdict, measures = play(lock, TASK, [way[0], other, way[2]])
    assert [o.observation for o in seen] == [o.observation for o in outcomes]
    assert (
        verdict is not None and not verdict.solved and verdict.value == 0 and measures == {"right": 2.0, "regret": 1.0}
    )


def test_what_is_no_symbol_and_which_combination() -> None:
    _, outcomes, verdict, _ = play(Lock(), TASK, ["x", "ab", ""])
    assert [o.valid for o in outcomes] == [False] * 3 and verdict is not None and verdict.value == 0
    found = {Lock(seed=seed).combination for seed in range(8)}
    assert len(found) > 4 and len(Lock(turns=5, symbols=26).combination) == 5


@pytest.mark.parametrize("turns", [1, 4])
def test_its_own_player_opens_it(turns: int) -> None:
    async def solved() -> bool:
        async with Lock(turns=turns).open(TASK, Random(0).random) as instance:
            for _ in range(turns):
                await instance.step(await instance.solution() or "")
            verdict = instance.verdict()
            return verdict is not None and verdict.solved

    assert asyncio.run(solved())
