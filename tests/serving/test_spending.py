"""What answers cost, and the stop before a budget is passed."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.errors import AlarmStop
from posttrain.models import Budget, Endpoint
from posttrain.runs.answers import FILE, AnswerBook
from posttrain.serving.client import Remote
from posttrain.serving.spending import Spending, Usage, estimated, most

REQUEST: Mapping[str, Any] = {"prompt": "12345678", "max_tokens": 10}
CHAT: Mapping[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}


def test_the_bound_and_the_estimate_of_a_request() -> None:
    assert most(REQUEST) == Usage(8 + 16, 10, True)
    assert most(CHAT).prompt == len(json.dumps(CHAT["messages"])) + 32
    assert estimated(REQUEST, "abcde") == Usage(2, 2, True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"prompt_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": -1, "completion_tokens": 1},
        "x",
    ],
)
def test_what_states_no_tokens(value: object) -> None:
    assert Usage.read(value) is None


def test_a_request_waits_for_those_under_way_and_stops_where_it_alone_would_pass() -> None:
    async def run() -> None:
        spending = Spending("judge", Budget(tokens=70))
        first, second = [await spending.reserve(REQUEST) for _ in range(2)]  # 2 x 34 of 70
        third = asyncio.create_task(spending.reserve(REQUEST))
        await asyncio.sleep(0)
        assert not third.done(), "two are under way"
        spending.free(first)
        spending.add(Usage(20, 12))
        await asyncio.sleep(0)
        assert not third.done(), "32 + 34 + 34"
        spending.free(second)
        spending.add(Usage(0, 4))
        spending.free(await third)  # 36 + 34
        spending.add(Usage(0, 1, True))
        with pytest.raises(AlarmStop, match="budget of 70 tokens: 20 \\+ 17 tokens, 1 of them estimated are spent"):
            await spending.reserve(REQUEST)

    asyncio.run(run())


def test_money() -> None:
    budget = Budget(money=1.0, prompt_price=2.0, answer_price=8.0)
    assert budget.cost(250_000, 62_500) == 1.0
    assert budget.passed(250_000, 62_500) == "" and budget.passed(250_000, 62_501) == "1 in money"
    with pytest.raises(ValidationError, match="money needs prompt_price"):
        Budget(money=1.0)
    priced = Spending("judge", Budget(prompt_price=2.0))
    priced.add(Usage(500_000, 7))
    assert priced.as_json["cost"] == 1.0 and "(1 in money)" in priced.summary
    assert Spending("judge", None).as_json["cost"] is None


def test_what_a_run_had_spent_counts_after_a_restart(tmp_path: Path) -> None:
    book = AnswerBook(tmp_path)
    book.add("judge", REQUEST, "an answer", Usage(30, 5))
    old = {"key": "k", "role": "judge", "request": REQUEST, "answer": "abcd"}
    with (tmp_path / FILE).open("a") as file:
        file.write(json.dumps(old) + "\n")  # a record of before tokens were kept
    remote = Remote("judge", "http://127.0.0.1:1/v1", Endpoint(budget=Budget(tokens=80)))
    remote.answers = AnswerBook(tmp_path)
    remote.answers = AnswerBook(tmp_path)
    assert (remote.spending.prompt, remote.spending.completion, remote.spending.estimated) == (32, 6, 3)
    with pytest.raises(AlarmStop):
        asyncio.run(remote.spending.reserve({**REQUEST, "max_tokens": 19}))
