"""A digit in two sources: actions, behaviours, players."""

import asyncio
from itertools import product
from random import Random
from typing import Any

import pytest

from posttrain.components.environments import Outcome
from posttrain.components.environments.sources import BEHAVIOURS, REMINDER, Inquiry, Sources, action_of, optimum
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


def behaviours(opened: Any) -> dict[str, float]:
    """The measures that are behaviours."""
    return {name: opened.measures()[name] for name in BEHAVIOURS}


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
    assert behaviours(opened) == dict.fromkeys(BEHAVIOURS, 1.0)
    assert opened.measures()["regret"] == 0.0 and opened.measures()["calls"] == len(seen) - 1


def test_no_occasion_is_no_behaviour_and_a_hasty_player_shows_none() -> None:
    environment = Sources(empty=0.0, lie=0.0)
    _, opened = asyncio.run(played(environment, "a", None))
    assert behaviours(opened) == {"verification": 1.0, "authority": 1.0, "adaptive": 0.0, "recovery": 0.0}
    hasty = Sources(player="hasty", empty=0.0, lie=1.0)
    for official, solved in (("A", True), ("B", False)):
        _, opened = asyncio.run(played(hasty, key_where(hasty, official=official), None))
        assert opened.verdict().solved == solved and not any(behaviours(opened).values())


def test_a_careful_player_may_be_wrong_in_the_end() -> None:
    environment = Sources(player="careful_wrong")
    key = key_where(environment, lies=True, hidden=True)
    _, opened = asyncio.run(played(environment, key, None))
    assert not opened.verdict().solved and all(behaviours(opened).values())


def test_an_invalid_turn_is_lost_and_the_horizon_ends() -> None:
    seen, opened = asyncio.run(played(Sources(horizon=2), "a", ["hm", "<search>C</search>"]))
    assert seen == [REMINDER, REMINDER] and opened.verdict().value == 0.0


class Worlds:
    """Every fact with its chance, and what the best play of them returns: all ways to go on are tried."""

    def __init__(self, rules: Sources) -> None:
        self.rules = rules

    def made(self) -> list[tuple[float, dict[str, Any]]]:
        found = []
        for digit, official, shift, a, b in product(range(10), "AB", range(10), (False, True), (False, True)):
            lies = self.rules.lie / 9 if shift else 1 - self.rules.lie
            empty = [self.rules.empty if hidden else 1 - self.rules.empty for hidden in (a, b)]
            other = (digit + shift) % 10
            digits = {name: digit if name == official else other for name in "AB"}
            fact = {"digit": digit, "official": official, "digits": digits, "_hidden": {"A": a, "B": b}}
            found.append((lies * empty[0] * empty[1] / 20, fact))
        return [pair for pair in found if pair[0] > 0]

    async def best(self, worlds: list[tuple[float, dict[str, Any]]], actions: tuple[str, ...]) -> float:
        searches = ["<search>A</search>", "<search>B</search>", "<scripts>who</scripts>"]
        answers = [sum(chance for chance, fact in worlds if fact["digit"] == digit) for digit in range(10)]
        most = max(answers)
        if len(actions) + 1 == self.rules.horizon:
            return most
        for action in searches:
            seen = dict[str, list[tuple[float, dict[str, Any]]]]()
            for chance, fact in worlds:
                own = Inquiry(self.rules, Random(0), lambda: 0.0)
                for name, value in fact.items():
                    setattr(own, name, value)
                outcome = Outcome()
                for text in (*actions, action):
                    outcome = await own.step(text)
                seen.setdefault(outcome.observation.text, []).append((chance, fact))
            most = max(most, sum([await self.best(left, (*actions, action)) for left in seen.values()]))
        return most


@pytest.mark.parametrize(
    ("lie", "empty", "horizon"),
    [(0.4, 0.3, 1), (0.4, 0.3, 2), (0.95, 0.0, 2), (1.0, 0.5, 2), (0.4, 0.3, 3), (0.95, 0.0, 3), (0.95, 0.0, 4)],
)
def test_the_optimum_is_the_best_of_all_plays(lie: float, empty: float, horizon: int) -> None:
    worlds = Worlds(Sources(lie=lie, empty=empty, horizon=horizon))
    assert optimum(lie, empty, horizon) == pytest.approx(asyncio.run(worlds.best(worlds.made(), ())))


def test_the_optimum_by_hand() -> None:
    """A guess; a search and what it has; a look-up, a search that finds .7 of the time, else a guess."""
    assert optimum(0.4, 0.3, 1) == 0.1
    assert optimum(0.4, 0.3, 2) == pytest.approx(0.7 * 0.8 + 0.3 * 0.1)
    assert optimum(0.4, 0.0, 3) == 1.0
    assert optimum(0.4, 0.3, 5) == 1.0
