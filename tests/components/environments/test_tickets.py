"""A user with a ticket."""

import asyncio
from random import Random

from posttrain.components.environments.tickets import Tickets
from posttrain.types import Task
from tests.components.environments.playing import play, verdict_of

TASK = Task(key="a", prompt="")


def facts() -> str:
    """The facts of the task, by asking."""
    _, outcomes, *_ = play(Tickets(), TASK, ["?1", "?2", "?3"])
    return "".join("1" if "Yes" in outcome.observation.text else "0" for outcome in outcomes)


def test_the_right_desk_is_the_verdict() -> None:
    right = facts()
    _, outcomes, verdict, measures = play(Tickets(), TASK, ["?1", "?1", f"={right}"])
    assert [outcome.reward for outcome in outcomes] == [0.0, 0.0, 0.0]
    assert [outcome.observation.state_key for outcome in outcomes] == [f"{right[0]}??"] * 3
    assert outcomes[-1].done
    assert verdict is not None
    assert (verdict.value, verdict.solved, measures) == (1.0, True, {"repeats": 1.0, "regret": 0.0})
    wrong = "".join("1" if bit == "0" else "0" for bit in right)
    assert not verdict_of(Tickets(), TASK, [f"={wrong}"]).solved


def test_what_is_no_question_costs_a_turn() -> None:
    _, outcomes, *_ = play(Tickets(horizon=3), TASK, ["?9", "=1", "?\u00b2", "?1"])
    assert [outcome.valid for outcome in outcomes] == [False, False, False]
    assert outcomes[-1].done
    assert outcomes[-1].reward == 0.0


def test_the_optimum_requests_every_fact_once() -> None:
    async def turns() -> int:
        async with Tickets().open(TASK, Random(0).random) as instance:
            for turn in range(9):
                text = await instance.solution()
                assert text is not None
                if (await instance.step(text)).done:
                    assert instance.verdict().solved  # type: ignore[union-attr]
                    return turn + 1
        return 0

    assert asyncio.run(turns()) == 4
    assert "Reward: 0" in play(Tickets(shown=True), TASK, ["?1"])[1][0].observation.text
