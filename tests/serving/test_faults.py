"""Endpoints that are slow, refuse requests, answer nothing, or answer otherwise than at first."""

import asyncio
import json
import threading
from dataclasses import replace

import pytest
from pydantic import ValidationError

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.json_score import JsonScore
from posttrain.datasets.judge_prompts import JudgePrompt
from posttrain.engines import Sampling
from posttrain.errors import AlarmStop, NoAnswer
from posttrain.models import Canaries, Endpoint
from posttrain.serving.client import Remote
from posttrain.serving.drift import alike
from posttrain.serving.places import Places
from posttrain.serving.sampler import RemoteSampler
from tests.components.rewards.judging import SUM, attempt, score_all
from tests.serving import faulty
from tests.serving.faulty import FaultyServer

QUICK = Endpoint(retries=3, backoff_seconds=0.01, max_pause_seconds=0.05, timeout_seconds=0.5)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def remote_of(server: FaultyServer, settings: Endpoint) -> Remote:
    remote = Remote("judge", server.url, settings)
    asyncio.run(remote.check())
    return remote


def ask(remote: Remote, *prompts: str) -> list[str | BaseException]:
    async def run() -> list[str | BaseException]:
        asked = (RemoteSampler(remote, p).write(p, 1, Sampling(max_tokens=5)) for p in prompts)
        done = await asyncio.gather(*asked, return_exceptions=True)
        return [d if isinstance(d, BaseException) else d[0] for d in done]

    return asyncio.run(run())


def drip(handler: faulty.Handler, asked: faulty.Asked) -> None:
    """Sends a part of an answer every 50 ms, so that no single wait is long."""
    whole = faulty.completion(asked, "x" * 400).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(whole)))
    handler.end_headers()
    for start in range(0, len(whole), 8):
        handler.wfile.write(whole[start : start + 8])
        handler.wfile.flush()
        threading.Event().wait(0.05)


def test_places_halve_once_for_requests_that_were_under_way_and_come_back() -> None:
    places = Places(8)
    for seen in (0, 0, 0):
        places.fall(seen)
    assert (places.limit, places.falls) == (4.0, 1)
    places.fall(1)
    places.fall(2)
    places.fall(3)
    assert places.limit == 1.0, "one request at a time goes on"
    places.rise()
    assert places.limit == 2.0
    for _ in range(100):
        places.rise()
    assert places.limit == 8.0


def test_places_are_given_in_order_and_back_where_a_wait_is_cancelled() -> None:
    async def run() -> list[int]:
        places, order = Places(1), list[int]()

        async def one(number: int) -> None:
            async with places.one():
                await asyncio.sleep(0)
                order.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(run()) == [0, 1, 3, 4]


def test_refusals_lower_the_number_of_requests_and_are_a_note() -> None:
    refuse = faulty.status(429, Retry_After="0.02")
    with FaultyServer(*[refuse] * 4).running() as server:
        remote = remote_of(server, replace(QUICK, concurrency=4))
        assert all(isinstance(text, str) for text in ask(remote, *"abcdefgh"))
        [note] = remote.take_notes()
    assert "refused 4 requests as too many" in note and "at least 2 requests at a time of 4" in note
    assert remote._places.limit > 2.0 and not remote.take_notes()


def test_an_answer_that_comes_too_slowly_is_asked_for_again() -> None:
    with FaultyServer(drip).running() as server:
        remote = remote_of(server, replace(QUICK, answer_seconds=0.2))
        assert ask(remote, "a") == [faulty.reply_to(server.asked[-1])] and len(server.asked) == 2


def test_a_verdict_has_a_limit_and_others_go_on() -> None:
    def behave(handler: faulty.Handler, asked: faulty.Asked) -> None:
        (faulty.silence(5.0) if asked["prompt"] == "slow" else faulty.answer)(handler, asked)

    with FaultyServer(usual=behave).running() as server:
        remote = remote_of(server, replace(QUICK, verdict_seconds=0.3, timeout_seconds=5.0))
        slow, *others = ask(remote, "slow", "a", "b")
    assert isinstance(slow, NoAnswer) and "within verdict_seconds=0.3" in str(slow)
    assert all(isinstance(text, str) for text in others)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_answer_is_asked_for_again_and_then_an_error(text: str) -> None:
    def empty(handler: faulty.Handler, asked: faulty.Asked) -> None:
        handler.send(200, faulty.completion(asked, text))

    with FaultyServer(empty).running() as server:
        [found] = ask(remote_of(server, QUICK), "a")
        assert found == faulty.reply_to(server.asked[-1])
    with FaultyServer(usual=empty).running() as server:
        [found] = ask(remote_of(server, replace(QUICK, retries=1)), "a")
        assert isinstance(found, NoAnswer) and "no answer to this request after 2 attempts" in str(found)


def test_an_endpoint_that_answers_otherwise_stops_the_run() -> None:
    exchanged = [False]

    def behave(handler: faulty.Handler, asked: faulty.Asked) -> None:
        handler.send(200, faulty.completion(asked, f"Score: {len(asked['prompt']) + 5 * exchanged[0]}"))

    settings = replace(QUICK, canaries=Canaries(items=2, every=3, most=0.4))
    with FaultyServer(usual=behave).running() as server:
        remote = remote_of(server, settings)
        assert all(isinstance(text, str) for text in ask(remote, "a", "bb", "ccc"))
        assert len(server.asked) == 5, "two items are asked again after three answers"
        exchanged[0] = True
        assert all(isinstance(text, str) for text in ask(remote, "d", "ee"))
        [stop] = ask(remote, "fff")
    assert isinstance(stop, AlarmStop) and "answers 100% of 2 canary items otherwise than at first" in str(stop)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Fine. Score: 7", "It is good (2 of 3). Score: 7.0", True),
        ("Score: 7", "Score: 8", False),
        ("yes", " yes\n", True),
        ("yes", "no", False),
        ("Score: 7", "none", False),
    ],
)
def test_which_answers_are_alike(first: str, second: str, same: bool) -> None:
    assert alike(first, second) is same


def test_a_form_is_sent_as_a_schema() -> None:
    def behave(handler: faulty.Handler, asked: faulty.Asked) -> None:
        handler.send(200, faulty.completion(asked, '{"why": "right", "score": 4}'))

    reward = JsonScore(constrained=20, prompt=JudgePrompt(scale=(1, 5)))
    with FaultyServer(usual=behave).running() as server:
        context = RewardContext(samplers={"judge": RemoteSampler(remote_of(server, QUICK), "x")})  # type: ignore[dict-item]
        [found] = score_all(reward, attempt("42"), context=context)
        form = server.asked[-1]["response_format"]
    assert found.value == pytest.approx(0.75) and "own_form" not in found.parts
    assert form["type"] == "json_schema" and form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"] == {
        "type": "object",
        "properties": {
            "why": {"type": "string", "maxLength": 20},
            "score": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "required": ["why", "score"],
        "additionalProperties": False,
    }
    with FaultyServer(usual=faulty.status(400, json.dumps({"error": "no response_format"}))).running() as server:
        context = RewardContext(samplers={"judge": RemoteSampler(remote_of(server, QUICK), "x")})  # type: ignore[dict-item]
        [found] = score_all(replace(reward, constrained=0), attempt("42", SUM), context=context)
    assert found.status == "error" and "refuses this request" in found.explanation


def test_shares_of_canary_items_are_bounded() -> None:
    with pytest.raises(ValidationError):
        Canaries(most=1.0)
