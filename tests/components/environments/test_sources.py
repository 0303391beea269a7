"""A digit in two sources: actions, behaviours, players."""

import asyncio
from random import Random
from typing import Any

import pytest

from posttrain.components.environments.sources import BEHAVIOURS, REMINDER, Sources, action_of
from posttrain.types import Task


def key_where(environment: Sources, **wanted: Any) -> str:
    """The first task with these properties."""
    for number in range(1000):
        own: Any = environment.instance(Task(key=str(number), prompt=""), Random(0).random)
        liar = "B" if own.official == "A" else "A"
        facts = {"lies": own.digits[liar] != own.digit, "hidden": own._hidden["A"], "official": own.official}
        if all(facts[name] == value for name, value in wanted.items()):
            return str(number)
    raise AssertionError(wanted)


async def played(environment: Sources, key: str, actions: list[str] | None) -> tuple[list[str], Any]:
    async with environment.open(Task(key=key, prompt=""), Random(1).random) as opened:
        opened.begin()
        seen = []
        for turn in range(environment.horizon):
            action = actions[turn] if actions is not None else await opened.solution()
            outcome = await opened.step(action)
            seen.append(outcome.observation.text.strip())
            if outcome.done or (actions is not None and turn + 1 == len(actions)):
                return seen, opened
        raise AssertionError("the episode ends at the horizon")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>so</think><search>A</search>", ("search", "A")),
        ("well <answer> 7 </answer>", ("answer", "7")),
        ("<search>A</search><search>B</search>", None),
        ("<search>A", None),
        ("<search>A</search></plan>", None),
        ("<information>A 7</information><answer>7</answer>", None),
        ("<think>t</think> <summary>A 7</summary>", ("summary", "A 7")),
        ("so <summary>A 7</summary>", None),
    ],
)
def test_one_action_a_turn(text: str, action: tuple[str, str] | None) -> None:
    assert action_of(text) == action


def test_all_four_behaviours() -> None:
    environment = Sources()
    key = key_where(environment, lies=True, hidden=True, official="B")
    seen, opened = asyncio.run(played(environment, key, None))
    assert seen[0] == "A nothing" and seen[-2] == "official B" and opened.verdict().solved
    assert opened.measures() == dict.fromkeys(BEHAVIOURS, 1.0)


def test_no_occasion_is_no_behaviour_and_a_hasty_player_shows_none() -> None:
    environment = Sources(empty=0.0, lie=0.0)
    _, opened = asyncio.run(played(environment, "a", None))
    assert opened.measures() == {"verification": 1.0, "authority": 1.0, "adaptive": 0.0, "recovery": 0.0}
    hasty = Sources(player="hasty", empty=0.0, lie=1.0)
    for official, solved in (("A", True), ("B", False)):
        _, opened = asyncio.run(played(hasty, key_where(hasty, official=official), None))
        assert opened.verdict().solved == solved and not any(opened.measures().values())


def test_a_careful_player_may_be_wrong_in_the_end() -> None:
    environment = Sources(player="careful_wrong")
    key = key_where(environment, lies=True, hidden=True)
    _, opened = asyncio.run(played(environment, key, None))
    assert not opened.verdict().solved and all(opened.measures().values())


def test_an_invalid_turn_is_lost_and_the_horizon_ends() -> None:
    seen, opened = asyncio.run(played(Sources(horizon=2), "a", ["hm", "<search>C</search>"]))
    assert seen == [REMINDER, REMINDER] and opened.verdict().value == 0.0
