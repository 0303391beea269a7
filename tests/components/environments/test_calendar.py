"""Two diaries."""

import asyncio
from random import Random

import pytest

from posttrain.components.environments.calendar import Calendar
from posttrain.types import Task
from tests.components.environments.playing import play, verdict_of


def common(task: Task, rules: Calendar) -> list[int]:
    """The hours at which both are free, by reading all."""
    reads = [f"{name} {day + 1}" for day in range(rules.days) for name in ("ann", "bob")]
    _, outcomes, *_ = play(rules, task, reads)
    free = [{int(word) for word in own.observation.text.split() if word.isdigit()} for own in outcomes]
    return [
        day * rules.hours + hour - 1 for day in range(rules.days) for hour in sorted(free[2 * day] & free[2 * day + 1])
    ]


def booking(hour: int, rules: Calendar) -> str:
    return f"book {hour // rules.hours + 1} {hour % rules.hours + 1}"


def test_the_earliest_common_hour_is_best_and_a_later_one_has_less() -> None:
    rules = Calendar(horizon=20)
    several = 0
    for key in map(str, range(12)):
        task = Task(key=key, prompt="")
        hours = common(task, rules)
        assert hours, "there is always one"
        best = verdict_of(rules, task, [booking(hours[0], rules)])
        assert (best.value, best.solved) == (1.0, True)
        for later in hours[1:]:
            other = verdict_of(rules, task, [booking(later, rules)])
            assert other.value == pytest.approx(1 - (later - hours[0]) / (15 - hours[0])) and not other.solved
            several += 1
        busy = next(hour for hour in range(15) if hour not in hours)
        assert verdict_of(rules, task, [booking(busy, rules)]).value == 0.0
        assert verdict_of(rules, task, ["ann 1"]).value == 0.0
    assert several > 3


def test_other_calls_cost_a_turn_and_the_horizon_ends() -> None:
    calls = ["ann", "ann 4", "carl 1", "book 1 6", "book 1", "ann 0", "ann \u00b2"]
    _, outcomes, verdict, measures = play(Calendar(horizon=7), Task(key="a", prompt=""), calls)
    assert [own.valid for own in outcomes] == [False] * 7 and outcomes[-1].done
    assert verdict is not None and not verdict.solved and measures["failed"] == 7 and measures["regret"] == 1.0


def test_the_solver_reads_no_more_than_it_needs() -> None:
    async def measured(key: str) -> dict[str, float]:
        async with Calendar().open(Task(key=key, prompt=""), Random(0).random) as instance:
            for _ in range(8):
                text = await instance.solution()
                assert text is not None
                if (await instance.step(text)).done:
                    break
            return instance.measures()

    for key in map(str, range(20)):
        assert asyncio.run(measured(key)) == {"regret": 0.0, "extra_turns": 0.0, "failed": 0.0}
