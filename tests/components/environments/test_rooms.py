"""Dark rooms and rooms with random light, by hand."""

import asyncio
from random import Random
from typing import Any

import pytest

from posttrain.components.environments.rooms import COLOURS, Rooms
from posttrain.types import Task

TASK = Task(key="a", prompt="")


async def played(environment: Rooms, actions: str) -> tuple[list[str], Any]:
    async with environment.open(TASK, Random(0).random) as opened:
        seen = [opened.begin().text.strip()]
        seen += [(await opened.step(action)).observation.text.strip() for action in actions]
        return seen, opened


def test_a_walk_in_the_dark() -> None:
    """From the middle of room 0 two cells to the left are the last one of the last room; three to the right room 1."""
    seen, opened = asyncio.run(played(Rooms(lit=0), "llwrrrs"))
    assert seen == ["dark 1", "dark 0", "dark 2", "dark 2", "dark 0", "dark 1", "dark 2", "dark 2"]
    assert (
        opened.measures()["rooms"] == 2.0
        and opened.measures()["regret"] == pytest.approx(4 / 6)
        and opened.verdict().value == pytest.approx(2 / 6)
    )


def test_light_is_random_until_it_is_turned_off() -> None:
    """All rooms but the first have light; the first cell of room 1 is two cells to the right."""
    seen, opened = asyncio.run(played(Rooms(rooms=2, lit=1), "rr" + "w" * 20 + "sww"))
    words = [text.split()[0] for text in seen]
    assert words[1] == "dark" and set(words[2:23]) <= set(COLOURS) and len(set(words[2:23])) > 2
    assert words[23:] == ["dark"] * 3 and opened.measures()["lit"] == 0.0
    assert opened.verdict().solved


def test_the_switch_is_on_the_first_cell() -> None:
    seen, opened = asyncio.run(played(Rooms(rooms=2, lit=1), "rrrs"))
    assert seen[-1].split()[0] in COLOURS and opened.measures()["lit"] == 1.0
