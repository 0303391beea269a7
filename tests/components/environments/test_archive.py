"""A search over pages."""

import asyncio
import re
from itertools import product
from random import Random
from typing import Any

import pytest

from posttrain.components.environments.archive import Archive
from posttrain.components.tasks.pages import Pages
from posttrain.datasets.pages import pages
from posttrain.types import Task
from tests.components.environments.playing import play

ARCHIVE = Archive(pages=Pages(size=20, what="entries"), searches=2)
FIRST = pages(20)[0]


def test_searches_are_answered_up_to_the_limit() -> None:
    task = Task(key="a", prompt="")
    search = f"<search>{FIRST.name} lives</search>"
    _, outcomes, verdict, measures = play(ARCHIVE, task, [search, "<search> </search>", search])
    assert outcomes[0].observation.text == f" <information>\n{FIRST.text}\n</information>\n" and outcomes[0].valid
    assert outcomes[1].observation.text == " <information>\nnothing\n</information>\n" and not outcomes[1].valid
    assert outcomes[2].done and verdict is None and measures == {"searches": 3.0, "pages": 1.0, "calls": 2.0}


def test_an_answer_ends_and_an_unopened_search_is_not_valid() -> None:
    _, outcomes, *_ = play(ARCHIVE, Task(key="a", prompt=""), ["x</search>", "<answer>ulm</answer>"])
    assert not outcomes[0].valid and not outcomes[0].done and outcomes[1].done and outcomes[1].valid


def test_the_player_reads_the_pages_of_its_path() -> None:
    async def solved(task: Task) -> tuple[str, Any]:
        async with ARCHIVE.open(task, Random(0).random) as instance:
            while True:
                text = await instance.solution()
                assert text is not None
                if (await instance.step(text)).done:
                    return text, instance.measures()

    for task in Pages(size=20).load():
        text, measures = asyncio.run(solved(task))
        assert text == f"<answer>{task.answer}</answer>" and measures["searches"] == 2.0
        assert measures["regret"] == 0.0


@pytest.mark.parametrize("searches", [1, 2])
def test_the_optimum_is_what_all_searches_find(searches: int) -> None:
    """Of two pages: both with two searches, and one of them with one."""
    environment = Archive(pages=Pages(size=20, what="titled"), searches=searches)
    task = Pages(size=20).load()[0]
    path = task.fields["path"]
    wanted = {environment.index.best(query) for query in path}
    words = sorted({word for text in environment.texts[:4] for word in re.findall(r"\w+", text)} | set(path))
    found, regrets = [], []
    for queries in product(words, repeat=searches):
        *_, measures = play(environment, task, [f"<search>{query}</search>" for query in queries])
        found.append(len(wanted & {environment.index.best(query) for query in queries}))
        regrets.append(measures["regret"])
    assert len(wanted) == 2 and max(found) == searches
    assert regrets == [1 - number / max(found) for number in found]
