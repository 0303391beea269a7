"""Donors of a hidden kind."""

import asyncio
from itertools import product

from posttrain.components.environments.donor import GREETINGS, PLEAS, SHOWN, Donor, kind_of
from posttrain.types import Task
from tests.components.environments.playing import play


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


def test_the_regret_is_what_all_dialogues_miss_of_the_best() -> None:
    task = Task(key="a", prompt="")
    plays = [play(Donor(), task, turns) for turns in product((*GREETINGS, *PLEAS, "no"), repeat=2)]
    values = [verdict.value for _, _, verdict, _ in plays if verdict is not None]
    assert max(values) == 1.0 and min(values) == 0.0
    assert [measures["regret"] for *_, measures in plays] == [max(values) - value for value in values]
