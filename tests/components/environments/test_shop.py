"""A shop behind calls: the plan and the checks, by hand."""

import asyncio
from random import Random

from posttrain.components.environments.shop import ITEMS, SHORTEST, Shop
from posttrain.types import Task
from tests.components.environments.playing import play, verdict_of

TASK = Task(key="a", prompt="")


def number() -> int:
    """The number of the item that is asked for, from what the shop writes."""
    text = play(Shop(), TASK, [])[0].text
    item = next(item for item in ITEMS if item in text)
    _, outcomes, *_ = play(Shop(), TASK, ["login", "list"])
    listed = outcomes[-1].observation.text.strip().rstrip(".").split(", ")
    return next(int(row.split()[0]) for row in listed if row.endswith(item))


def test_the_shortest_plan_passes_every_check() -> None:
    plan = ["login", "list", f"add {number()}", "address", "order", "done"]
    _, outcomes, verdict, measures = play(Shop(), TASK, plan)
    assert len(plan) == SHORTEST and outcomes[-1].done and all(outcome.valid for outcome in outcomes)
    assert verdict is not None
    assert (verdict.value, verdict.solved, measures) == (1.0, True, {"regret": 0.0, "calls": 5.0, "failed": 0.0})


def test_checks_are_partial() -> None:
    right, wrong = number(), number() % 3 + 1
    third = 1 / 3
    assert verdict_of(Shop(), TASK, ["login", f"add {right}", "done"]).value == third  # listing is no check
    assert verdict_of(Shop(), TASK, ["login", f"add {wrong}", "address", "order", "done"]).value == 2 * third
    assert verdict_of(Shop(), TASK, ["login", f"add {right}", f"add {right}", "address", "done"]).value == third
    assert verdict_of(Shop(value="all"), TASK, ["login", f"add {right}", "done"]).value == 0.0
    assert verdict_of(Shop(), TASK, ["done"]).value == 0.0


def test_calls_out_of_order_fail_and_cost_a_turn() -> None:
    calls = ["list", "add 1", "login", "address", "order", "add 4", "hello", "add 1", "order", "login"]
    _, outcomes, _, measures = play(Shop(), TASK, calls)
    assert [outcome.valid for outcome in outcomes] == [i in (2, 7, 9) for i in range(10)]
    assert outcomes[-1].done and measures == {"regret": 5.0, "calls": 10.0, "failed": 7.0}


def test_regret_of_giving_up_is_above_that_of_a_late_success() -> None:
    good = ["login", "list", f"add {number()}", "address", "order"]

    def regret(turns: list[str], horizon: int = 10) -> float:
        return play(Shop(horizon=horizon), TASK, turns)[3]["regret"]

    assert regret([*good, "done"]) == 0.0
    assert regret(["list", *good, "login", "done"]) == 2.0
    assert regret(["list", "list", "order", *good, "login", "done"]) == 4.0, "solved in the last turn"
    assert regret(["done"]) == regret([*good[:4], "done"]) == 5.0, "no check passes, or not all"
    assert regret(good, horizon=5) == 0.0, "the end by the limit needs no ``done``"
    assert regret(["done"], horizon=5) == 1.0


def test_its_own_player_takes_the_shortest_plan() -> None:
    async def turns(key: str) -> int:
        async with Shop().open(Task(key=key, prompt=""), Random(0).random) as instance:
            for turn in range(12):
                if (await instance.step(await instance.solution() or "")).done:
                    assert instance.verdict().solved  # type: ignore[union-attr]
                    return turn + 1
        return 0

    assert {asyncio.run(turns(str(i))) for i in range(8)} == {SHORTEST}
