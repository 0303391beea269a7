"""Verifiers, with a stand-in of the same interface, and the endpoint of its programs."""

import asyncio
import json
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from posttrain.components.environments._foreign import make
from posttrain.components.environments._foreign.loopback import Ended, Endpoint
from posttrain.components.environments._foreign.verifiers import Verifiers
from posttrain.components.environments.foreign import Foreign
from tests.components.environments.test_foreign import played

ADD = {"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {}, "b": {}}}}}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'


def asked(address: str, messages: list[Any], **more: Any) -> str:
    """What the endpoint answers to a program."""
    body = json.dumps({"model": "policy", "messages": messages, **more}).encode()
    request = Request(f"{address}/chat/completions", body, {"content-type": "application/json"})
    with urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


class Chat:
    """An environment of verifiers: requests, calls a tool where the answer does, and requests again."""

    taskset = ("one and two", "two and two")

    def __init__(self) -> None:
        self.fault = ""

    def serving(self) -> Any:
        class Nothing:
            async def __aenter__(self) -> None: ...
            async def __aexit__(self, *_: object) -> None: ...

        return Nothing()

    def slots(self, task: str) -> list[str]:
        return [task]

    async def run_slot(self, task: str, context: Any) -> Any:
        messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": f"Add {task}."}]}]
        errors = [SimpleNamespace(type="TaskError", message=self.fault)] if self.fault else []
        for _ in range(0 if errors else 3):
            said = await asyncio.to_thread(asked, context.client.base_url, messages, tools=[ADD])
            message = json.loads(said)["choices"][0]["message"]
            if "tool_calls" not in message:
                break
            messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3"}]
        trace = SimpleNamespace(reward=float(len(messages) == 3), errors=errors)
        return SimpleNamespace(errors=[], traces=[trace])


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    clients = SimpleNamespace(EvalClientConfig=SimpleNamespace, ModelContext=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "verifiers.v1.clients", clients)
    for name in ("verifiers", "verifiers.v1"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    return Chat()


@pytest.mark.slow
def test_an_episode(chat: Chat) -> None:
    made = Verifiers(chat, "hermes")
    first = made.reset(0, {})
    assert first.text == f"Tools:\n{json.dumps(ADD['function'])}\nAdd one and two."
    answered = made.step(f"I add. {CALL}")
    assert (answered.text, answered.terminated) == ("3", False)
    assert made.step("It is 3.").terminated
    assert made.value() == 1.0
    made.close()
    assert made.reset(0, {"idx": 1}).text.endswith("Add two and two.")
    assert made.step("4").terminated
    assert made.value() == 0.0
    made.close()


def test_an_error_of_the_episode_is_one(chat: Chat) -> None:
    chat.fault = "no such file"
    made = Verifiers(chat, "hermes")
    with pytest.raises(RuntimeError, match="TaskError: no such file"):
        made.reset(0, {})
    made.close()


def asking(endpoint: Endpoint, messages: list[Any], **more: Any) -> tuple[threading.Thread, list[str]]:
    said: list[str] = []

    def ask() -> None:
        with suppress(HTTPError):  # where the endpoint closes first
            said.append(asked(endpoint.address, messages, **more))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, said


def test_a_stream_has_the_text_and_the_calls() -> None:
    endpoint = Endpoint("hermes")
    thread, said = asking(endpoint, [{"role": "user", "content": "go"}], stream=True, tools=[ADD])
    endpoint.request()
    endpoint.reply(CALL)
    thread.join()
    *events, end = [line.removeprefix("data: ") for line in said[0].splitlines() if line]
    assert end == "[DONE]"
    first, last, usage = map(json.loads, events)
    assert first["choices"][0]["delta"]["content"] == CALL
    function = first["choices"][0]["delta"]["tool_calls"][0]["function"]
    assert function == {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert usage["choices"] == []
    endpoint.close()


def test_what_was_shown_stands() -> None:
    """A program that rewrites its context cannot go on: turns that were sampled after the old one are final."""
    endpoint = Endpoint("hermes")
    asking(endpoint, [{"role": "user", "content": "one"}])
    endpoint.request()
    endpoint.reply("yes")
    asking(endpoint, [{"role": "user", "content": "ONE"}, {"role": "assistant", "content": "yes"}])
    with pytest.raises(RuntimeError, match="changed messages"):
        endpoint.request()
    endpoint.close()


def test_after_the_end_nothing_is_answered() -> None:
    endpoint = Endpoint("hermes")
    thread, said = asking(endpoint, [])
    endpoint.request()
    endpoint.end("out of time")
    with pytest.raises(Ended, match="out of time"):
        endpoint.request()
    endpoint.close()
    thread.join(10)
    assert (said, thread.is_alive()) == ([], False)


SUMS = """
import verifiers.v1 as vf
class SumData(vf.TaskData):
    answer: str
class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == self.data.answer)
class Sums(vf.Taskset[SumTask]):
    def load(self):
        for a in range(5):
            yield SumTask(SumData(prompt=f"What is {a}+{a}?", answer=str(2 * a)), self.config.task)
__all__ = ["Sums"]
"""


@pytest.mark.slow
def test_verifiers_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verifiers.v1")
    (tmp_path / "sums_v1.py").write_text(SUMS)
    monkeypatch.syspath_prepend(tmp_path)
    first, (outcome,), *_ = played(Foreign(source="verifiers:sums_v1", step_seconds=120), ["0"])
    assert "What is" in first.text
    assert outcome.done


def test_without_it_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(ModuleNotFoundError, match="verifiers"):
        make("verifiers:sums_v1", {}, "text", "hermes")
