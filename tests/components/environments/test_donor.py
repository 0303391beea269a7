"""Donors of a hidden kind."""

import asyncio

from posttrain.components.environments.donor import PLEAS, SHOWN, Donor, kind_of
from posttrain.types import Task


def call(task: Task, *said: str) -> tuple[list[str], float]:
    async def play() -> tuple[list[str], float]:
        async with Donor().open(task, lambda: 0.0) as instance:
            seen = [instance.begin().text]
            for text in said:
                outcome = await instance.step(text)
                seen.append(outcome.observation.text)
            verdict = instance.verdict()
            assert verdict is not None
            return seen, verdict.value

    return asyncio.run(play())


def test_the_first_answer_shows_the_kind_and_the_plea_that_suits_is_rewarded() -> None:
    kinds = set()
    for number in range(12):
        task = Task(key=str(number), prompt="")
        kind = kind_of(task)
        kinds.add(kind)
        assert call(task, "hello\n", PLEAS[kind]) == (["a donor\n", SHOWN[kind], "yes\n"], 1.0)
        assert call(task, "hi\n", PLEAS[1 - kind])[1] == 0.0 and call(task, "hi\n")[1] == 0.0
    assert kinds == {0, 1}
