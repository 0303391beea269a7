import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.engines import Sampling
from posttrain.errors import AlarmStop, NoAnswer, UserError
from posttrain.models import Budget, Endpoint
from posttrain.runs.answers import FILE, AnswerBook
from posttrain.serving.client import Remote
from posttrain.serving.sampler import RemoteSampler
from posttrain.types import Message
from tests.serving import faulty
from tests.serving.faulty import Behaviour, FaultyServer

pytestmark = pytest.mark.slow  # seconds for many of them

QUICK = Endpoint(
    retries=3, backoff_seconds=0.01, max_pause_seconds=0.05, max_retry_after_seconds=0.05, timeout_seconds=0.5
)
DRAWN = Sampling(max_tokens=9, temperature=0.5, top_p=0.9, stop=("\n",))


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by way of a proxy that the machine may have."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def ask(
    server: FaultyServer | str, prompts: Sequence[str] = ("hello",), settings: Endpoint = QUICK, seed: int = 0
) -> list[str | BaseException]:
    """What comes of prompts that are asked at the same time."""
    remote = Remote("judge", server if isinstance(server, str) else server.url, settings, seed=seed)

    async def run() -> list[str | BaseException]:
        await remote.check()
        samplers = [RemoteSampler(remote, "stage", 0, place) for place in range(len(prompts))]
        asked = (s.write(p, 1, DRAWN) for s, p in zip(samplers, prompts, strict=True))
        done = await asyncio.gather(*asked, return_exceptions=True)
        return [d if isinstance(d, BaseException) else d[0] for d in done]

    return asyncio.run(run())


def test_a_request_states_what_is_wanted_and_nothing_else() -> None:
    with FaultyServer().running() as server:
        remote = Remote("judge", server.url + "/", QUICK, seed=5)

        async def run() -> tuple[list[str], list[str]]:
            await remote.check()
            sampler = RemoteSampler(remote, "stage", 3)
            texts = await sampler.write("hello", 2, DRAWN)
            return texts, await sampler.write((Message(role="user", content="hi"),), 1, Sampling(max_tokens=4))

        texts, replies = asyncio.run(run())
    first, second, chat = sorted(
        server.asked,
        key=lambda asked: ("messages" in asked, texts.index(faulty.reply_to(asked)) if "prompt" in asked else 0),
    )
    seed = first.pop("seed")
    assert first == {
        "model": "tester",
        "prompt": "hello",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["\n"],
        "n": 1,
    }
    assert seed != second["seed"] and texts[0] != texts[1], "each completion has its own seed"
    assert chat["messages"] == [{"role": "user", "content": "hi"}] and replies[0].startswith("hi!")
    assert all("Authorization" not in headers for headers in server.headers)


def test_seeds_are_a_function_of_the_run_the_role_and_what_is_asked_for() -> None:
    with FaultyServer().running() as server:
        first, again = ask(server, ["a", "a"]), ask(server, ["a", "a"])
        assert first == again and first[0] != first[1]
        assert ask(server, ["a", "a"], seed=1) != first


TROUBLE: dict[str, Behaviour] = {
    "server error": faulty.status(500, "oops"),
    "bad gateway": faulty.status(502, "<html>"),
    "rate limit": faulty.status(429, "slow down"),
    "rate limit with seconds": faulty.status(429, "{}", Retry_After="0.02"),
    "rate limit with a date": faulty.status(429, "{}", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "too long a rest is cut": faulty.status(503, "{}", Retry_After="86400"),
    "nonsense for a rest": faulty.status(503, "{}", Retry_After="soon"),
    "silence": faulty.silence(1.0),
    "no word": faulty.hang_up,
    "half an answer": faulty.truncated,
    "half a JSON": faulty.garbage('{"choices": [{"text": "he'),
    "no JSON": faulty.garbage("<html>hello</html>"),
    "nothing": faulty.garbage(""),
    "no choice": faulty.garbage('{"choices": []}'),
    "no text": faulty.garbage('{"choices": [{"message": {"content": null}}]}'),
    "a list": faulty.garbage("[1, 2]"),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
def test_what_may_pass_is_tried_again(trouble: Behaviour) -> None:
    with FaultyServer().running() as server:
        undisturbed = ask(server)
    with FaultyServer(trouble, trouble).running() as server:
        assert ask(server) == undisturbed
        assert len(server.asked) == 3 and server.asked[0] == server.asked[2], "the very same request"


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refused_request_fails_alone_and_at_once(code: int) -> None:
    def usual(handler: faulty.Handler, asked: faulty.Asked) -> None:
        (faulty.status(code, "too long for me") if asked["prompt"] == "bad" else faulty.answer)(handler, asked)

    with FaultyServer(usual=usual).running() as server:
        good, bad = ask(server, ["good", "bad"])
        assert str(good).startswith("good!")
        assert isinstance(bad, NoAnswer) and "too long for me" in str(bad) and f"status {code}" in str(bad)
        assert len(server.asked) == 2


def test_a_request_that_always_fails_while_the_endpoint_is_up_fails_alone() -> None:
    def usual(handler: faulty.Handler, asked: faulty.Asked) -> None:
        (faulty.status(500, "poison") if asked["prompt"] == "bad" else faulty.answer)(handler, asked)

    with FaultyServer(usual=usual).running() as server:
        good, bad = ask(server, ["good", "bad"])
        assert str(good).startswith("good!")
        assert isinstance(bad, NoAnswer) and "4 attempts" in str(bad) and "poison" in str(bad)
        assert [asked["prompt"] for asked in server.asked].count("bad") == 4


def test_an_endpoint_that_dies_stops_the_run_and_states_how_to_go_on() -> None:
    with FaultyServer().running() as server:
        remote = Remote("judge", server.url, QUICK)
        asyncio.run(remote.check())
    with pytest.raises(AlarmStop, match=r"role 'judge' is down after 4 attempts: Conn.* resume the run"):
        asyncio.run(RemoteSampler(remote, "x").write("hello", 1, DRAWN))


def test_an_outage_that_is_shorter_than_the_patience_is_not_noticed() -> None:
    """Dead between two requests; back, at the same address, while the second one waits."""
    patient = replace(QUICK, retries=12, backoff_seconds=0.05, max_pause_seconds=0.2)
    with FaultyServer().running() as server:
        remote, port = Remote("judge", server.url, patient), server.server_port
        asyncio.run(remote.check())

    async def run() -> list[str]:
        asked = asyncio.ensure_future(RemoteSampler(remote, "x").write("hello", 1, DRAWN))
        await asyncio.sleep(0.1)
        assert not asked.done()
        with FaultyServer(port=port).running():
            return await asked

    assert asyncio.run(run())[0].startswith("hello!")


@pytest.mark.parametrize(
    ("behaviour", "what"),
    [
        (faulty.status(401, "who are you?"), "refuses a request without a key"),
        (faulty.status(403, "no"), "api_key_env"),
        (faulty.status(404, "no such page"), "up to and including /v1"),
        (faulty.status(301, "", Location="http://127.0.0.1:9/v1"), "up to and including /v1"),
    ],
)
def test_what_only_the_user_can_repair_is_reported_at_once(behaviour: Behaviour, what: str) -> None:
    with FaultyServer(usual=behaviour).running() as server:
        [error] = ask(server)
        assert isinstance(error, UserError) and what in str(error)
        assert len(server.asked) == 1


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret\n")
    settings = replace(QUICK, api_key_env="JUDGE_KEY")
    echo = faulty.status(400, '{"error": "wrong key sk-very-secret given"}')
    with FaultyServer(usual=echo).running() as server:
        [refused] = ask(server, settings=settings)
        server.usual = faulty.status(401, "wrong key sk-very-secret given")
        [mistake] = ask(server, settings=settings)
        server.usual = faulty.answer
        remote = Remote("judge", server.url, settings)
        remote.answers = AnswerBook(tmp_path)
        asyncio.run(remote.check())
        asyncio.run(RemoteSampler(remote, "x").write("hello", 1, DRAWN))
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-very-secret"}
    assert "[key]" in str(refused) and "the key in JUDGE_KEY" in str(mistake)
    assert "secret" not in f"{refused!r} {mistake!r} {settings!r} {remote!r} {(tmp_path / FILE).read_text()}"


def test_a_key_that_is_not_there_is_reported_before_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(UserError, match="JUDGE_KEY, which is not set"):
        Remote("judge", "http://127.0.0.1:1/v1", Endpoint(api_key_env="JUDGE_KEY"))


def test_no_more_requests_at_a_time_than_allowed() -> None:
    here, most = [0], [0]

    def slow(handler: faulty.Handler, asked: faulty.Asked) -> None:
        with handler.server.lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        faulty.silence(0.02)(handler, asked)
        with handler.server.lock:
            here[0] -= 1
        handler.close_connection = False
        faulty.answer(handler, asked)

    with FaultyServer(usual=slow).running() as server:
        assert len(ask(server, [str(i) for i in range(12)], replace(QUICK, concurrency=3))) == 12
    assert most[0] == 3


def test_which_model_is_asked() -> None:
    with FaultyServer().running() as server:
        server.models = faulty.models("small", "large")
        with pytest.raises(UserError, match=r"offers 2 models \(small, large\)"):
            ask(server)
        with pytest.raises(UserError, match="did you mean 'large'"):
            ask(server, settings=replace(QUICK, model="larg"))
        ask(server, settings=replace(QUICK, model="large"))
        assert server.asked[-1]["model"] == "large"
        server.models = faulty.status(404)
        ask(server, settings=replace(QUICK, model="unlisted"))
        with pytest.raises(UserError, match="does not list its models"):
            ask(server)


def test_an_endpoint_that_is_not_there_is_reported_before_the_run() -> None:
    with pytest.raises(UserError, match=r"cannot be reached after 4 attempts: .* Is it running"):
        ask(f"http://127.0.0.1:{faulty.free_port()}/v1")


@pytest.mark.parametrize("setting", [{"top_k": 5}, {"min_p": 0.1}, {"stop_token_ids": (3,)}])
def test_settings_that_the_protocol_lacks_are_refused(setting: dict[str, object]) -> None:
    remote = Remote("judge", "http://127.0.0.1:1/v1", QUICK)
    with pytest.raises(UserError, match="leave it out"):
        asyncio.run(RemoteSampler(remote, "x").write("hello", 1, Sampling(**setting)))  # type: ignore[arg-type]


def test_an_endpoint_gives_text_only_and_reports_it() -> None:
    sampler = RemoteSampler(Remote("judge", "http://127.0.0.1:1/v1", QUICK), "x")
    with pytest.raises(UserError, match=r"token ids of role 'judge'.*endpoint"):
        sampler.encode("hello")
    with pytest.raises(UserError, match="log-probabilities of role 'judge'"):
        asyncio.run(sampler.logp([1, 2]))  # type: ignore[arg-type]
    assert 0 <= sampler.uniform() < 1


def test_answers_are_given_again_after_a_restart(tmp_path: Path) -> None:
    with FaultyServer().running() as server:
        remote = Remote("judge", server.url, QUICK)
        remote.answers = AnswerBook(tmp_path)
        asyncio.run(remote.check())
        texts = asyncio.run(RemoteSampler(remote, "x").write("hello", 3, DRAWN))
    book = tmp_path / FILE
    whole = book.read_bytes()
    assert [json.loads(line)["role"] for line in whole.splitlines()] == ["judge"] * 3
    book.write_bytes(whole + b'{"key": "torn')
    remote.answers = AnswerBook(tmp_path)
    assert book.read_bytes() == whole, "a line that was being written at the kill is none"
    assert asyncio.run(RemoteSampler(remote, "x").write("hello", 3, DRAWN)) == texts, "though the endpoint is gone"
    with pytest.raises(AlarmStop):
        asyncio.run(RemoteSampler(remote, "another").write("hello", 1, DRAWN))


def test_the_run_stops_before_the_request_that_would_pass_the_budget(tmp_path: Path) -> None:
    def counted(handler: faulty.Handler, asked: faulty.Asked) -> None:
        body = json.loads(faulty.completion(asked, faulty.reply_to(asked)))
        handler.send(200, json.dumps({**body, "usage": {"prompt_tokens": 2, "completion_tokens": 9}}))

    settings = replace(QUICK, budget=Budget(tokens=52), concurrency=1)  # a request: at most 5 + 16 + 9
    with FaultyServer(usual=counted).running() as server:
        remote = Remote("judge", server.url, settings)
        remote.answers = AnswerBook(tmp_path)
        asyncio.run(remote.check())
        for number in range(3):
            asyncio.run(RemoteSampler(remote, number).write("hello", 1, DRAWN))
        with pytest.raises(AlarmStop, match="budget of 52 tokens: 6 \\+ 27 tokens are spent"):
            asyncio.run(RemoteSampler(remote, 3).write("hello", 1, DRAWN))
        assert len(server.asked) == 3
        remote.answers = AnswerBook(tmp_path)
        assert asyncio.run(RemoteSampler(remote, 0).write("hello", 1, DRAWN)), "what is recorded costs nothing again"


def test_a_budget_is_spent_to_its_last_request_with_several_at_a_time(tmp_path: Path) -> None:
    def counted(handler: faulty.Handler, asked: faulty.Asked) -> None:
        body = json.loads(faulty.completion(asked, faulty.reply_to(asked)))
        handler.send(200, json.dumps({**body, "usage": {"prompt_tokens": 2, "completion_tokens": 9}}))

    async def all_of(remote: Remote) -> list[object]:
        requests = (RemoteSampler(remote, number).write("hello", 1, DRAWN) for number in range(20))
        return list(await asyncio.gather(*requests, return_exceptions=True))

    # A request costs 11, and 30 at most: after n answers the next one has room while 11 n + 30 is within 100.
    with FaultyServer(usual=counted).running() as server:
        remote = Remote("judge", server.url, replace(QUICK, budget=Budget(tokens=100), concurrency=8))
        remote.answers = AnswerBook(tmp_path)
        asyncio.run(remote.check())
        found = asyncio.run(all_of(remote))
        assert sum(isinstance(one, list) for one in found) == len(server.asked) == 7
        assert sum(isinstance(one, AlarmStop) for one in found) == 13 and remote.spending.as_json["answers"] == 7


def test_pauses_grow_differ_by_request_and_are_the_same_every_time() -> None:
    remote = Remote("judge", "http://127.0.0.1:1/v1", Endpoint(backoff_seconds=1.0, max_pause_seconds=20.0))
    pauses = [remote._pause("request", number, 0.0) for number in range(1, 8)]
    assert all(2 ** (n - 1) / 2 <= pause <= 2 ** (n - 1) for n, pause in enumerate(pauses[:5], 1))
    assert all(10 <= pause <= 20 for pause in pauses[5:])
    assert pauses == [remote._pause("request", number, 0.0) for number in range(1, 8)]
    assert pauses != [remote._pause("another", number, 0.0) for number in range(1, 8)]
    assert (remote._pause("r", 1, 7.0), remote._pause("r", 1, 700.0)) == (7.0, 700.0), "Retry-After is obeyed"
    assert remote._pause("r", 1, 7_000.0) == 3_600.0
