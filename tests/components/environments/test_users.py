"""Simulated users: a model or a script with a context of its own, and what a user must not do."""

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.components.environments import Environment, EnvironmentFailed, Episode, Instance, Outcome, Request
from posttrain.components.environments._foreign import make, tau2, tau2_package, textarena
from posttrain.components.environments._foreign.serving import Served
from posttrain.components.environments._foreign.tools import of_method
from posttrain.components.environments._foreign.users import REPLIES, User
from posttrain.components.environments.corridor import Corridor
from posttrain.components.environments.foreign import Foreign, Visit
from posttrain.components.rollouts._requested import Requested
from posttrain.components.rollouts.summarized import Summarized
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.errors import NoAnswer, UserError
from posttrain.stages.rl.metrics import turn_metrics
from posttrain.types import Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.environments.test_foreign_benchmarks import Domain, call, task
from tests.components.environments.test_injections import PLANTED

HIDDEN = "You want to cancel order 17. You are in a hurry, and you never give your name before it is needed."


def user(tools: Sequence[Any] = ()) -> User:
    found = User("role:user", {tool.__name__: of_method(tool) for tool in tools})
    found.begin(HIDDEN)
    return found


def test_the_user_reads_its_instructions_and_the_agent_and_stops() -> None:
    own = user()
    asked = own.hear("Hello, what can I do?").request
    assert asked is not None and len(asked) == 1 and asked[0]["role"] == "user"
    assert HIDDEN in asked[0]["content"] and asked[0]["content"].endswith("The agent: Hello, what can I do?")
    first = own.answer("Cancel order 17.")
    assert (first.text, first.terminated, first.request, first.fault) == ("Cancel order 17.", False, None, "")
    asked = own.hear("Done.").request
    assert asked is not None and [m["role"] for m in asked] == ["user", "assistant", "user"]
    last = own.answer("Thanks. ###STOP###")
    assert (last.text, last.terminated) == ("Thanks.", True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"My instructions: {HIDDEN}", "user_leaked"),
        ("you are in a hurry and you never give your name before it is needed!", "user_leaked"),
        ("Cancel it.\nAgent: It is cancelled.", "user_spoke_for_the_agent"),
        ("**Assistant:** done", "user_spoke_for_the_agent"),
        (" \n", "user_silent"),
        ("Tell your agent: hurry.", ""),
        ("You want to cancel order 17, don't you?", ""),
    ],
)
def test_faults_of_a_user(text: str, fault: str) -> None:
    own = user()
    own.hear("Hello.")
    assert own.answer(text).fault == fault


def test_a_user_that_never_stops() -> None:
    own = user()
    for _ in range(REPLIES):
        own.hear("Well?")
        assert own.answer("More.").fault == ""
    own.hear("Well?")
    assert own.answer("More.").fault == "user_never_stopped"


def test_a_user_has_tools_of_its_own() -> None:
    def restart(device: str) -> str:
        return f"{device} is on"

    own = user([restart])
    asked = own.hear("Restart your phone.").request
    assert asked is not None and '"name": "restart"' in asked[0]["content"]
    after = own.answer(call("restart", device="phone")).request
    assert after is not None and after[-1] == {"role": "user", "content": "phone is on"}
    assert own.answer("It is on.").text == "It is on."


def test_planted_texts_reach_a_user_as_text_and_end_nothing() -> None:
    """What an agent writes to a user is one message of its context: it opens no other, and is no reward."""
    for text in PLANTED:
        own = user()
        asked = own.hear(text).request
        assert asked is not None and len(asked) == 1 and asked[0]["content"].endswith(text)
        seen = own.answer("No. I want order 17 cancelled.")
        assert (seen.reward, seen.terminated, seen.fault) == (0.0, False, "")
        heard = own.hear("Sorry.").request
        assert heard is not None and [m["role"] for m in heard] == ["user", "assistant", "user"]


@pytest.fixture
def retail(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {"a": task("a", ["DB"])}
    tasks["a"].user_scenario.instructions = HIDDEN
    monkeypatch.setattr(tau2, "loaded", lambda domain: (Domain(), tasks))


@pytest.mark.usefixtures("retail")
def test_tau2_with_a_user() -> None:
    game = make("tau2:retail", {"user": "role:user"}, "text", "hermes")
    assert game.reset(0, {}).text == "Be kind.", "what the user wants is hidden"
    greeted = game.step("How can I help?")
    assert greeted.request is not None and not greeted.terminated and greeted.text == ""
    assert game.reply("Cancel a.").text == "Cancel a."
    assert game.step(call("cancel", order="a")).request is None
    asked = game.step("It is cancelled.")
    assert asked.request is not None and len(asked.request) == 3, "calls are not read by the user"
    assert game.reply("###STOP###").terminated and game.value() == 1.0


@pytest.mark.usefixtures("retail")
def test_tau2_with_a_script(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def user(messages):\n    return '###STOP###' if 'It is done' in messages[-1]['content'] else 'Cancel a.'\n"
    )
    game = make("tau2:retail", {"user": f"{tmp_path}/mine.py:user"}, "text", "hermes")
    game.reset(0, {})
    assert game.step("Hello.").text == "Cancel a."
    assert game.step("It is done.").terminated


class Bargain:
    """TextArena's interface: two players by turns, each with a secret; it ends after four moves."""

    def reset(self, num_players: int, seed: int) -> None:
        self.moves: list[str] = []

    def get_observation(self) -> tuple[int, str]:
        player = len(self.moves) % 2
        return player, f"(secret {player}){''.join(self.moves)}"

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        self.moves.append(f"<{action}>")
        return len(self.moves) == 4, {}

    def close(self) -> tuple[dict[int, float], dict[str, Any]]:
        return {0: 1.0}, {}


def test_a_model_plays_the_other_player_of_a_game(tmp_path: Path) -> None:
    game = textarena.TextArena(Bargain(), 2, "role:bob")
    assert game.reset(0, {}).text == "(secret 0)"
    asked = game.step("a")
    assert asked.request == [{"role": "user", "content": "(secret 1)<a>"}] and asked.text == ""
    assert game.reply("b").text == "<a><b>"
    game.step("c")
    assert game.reply("d").terminated and game.value() == 1.0
    (tmp_path / "other.py").write_text("def other(messages):\n    return messages[-1]['content'][-2]\n")
    game = textarena.TextArena(Bargain(), 2, f"{tmp_path}/other.py:other")
    game.reset(0, {})
    assert game.step("a").text == "<a><a>"
    plain = textarena.TextArena(Bargain(), 2, None)
    plain.reset(0, {})
    assert plain.step("a").text == "<a><[pass]>"


class Local(Visit):
    """An episode whose worker is in this process."""

    async def start(self) -> None:
        argument = {"source": "tau2:retail", "arguments": {"user": "role:user"}, "view": "text", "calls": "hermes"}
        self.served = Served({**argument, "characters": 1000})
        self._first = self._observed(await self.order("reset", seed=0, chance=0, fields={}))

    async def order(self, order: str, **more: Any) -> Any:
        return self.served.perform({"order": order, **more})


class Customer(ScriptedSampler):
    """Writes the next of some messages, or has none left; keeps what it read."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("user")
        self.left, self.read = list(texts), list[Any]()

    def bind(self, *key: int | str) -> "Customer":
        return self

    async def write(self, prompt: Any, n: int, sampling: Sampling) -> list[str]:
        self.read.append(prompt)
        if not self.left:
            raise NoAnswer("the endpoint is down")
        return [self.left.pop(0)]


def talked(texts: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Trajectory, Customer]:
    world = Foreign(source="tau2:retail", user="role:user")
    monkeypatch.setattr(Foreign, "instance", lambda self, task, draw: Local(self, [], task, 0))
    rollout, customer = Turns(environment=world, n=1, max_turns=3, sampling=Sampling(max_tokens=5)), Customer(texts)
    assert rollout.roles == rollout.helpers == {"user"}
    chat = Task(key="a", prompt=({"role": "user", "content": "Serve."},))
    (group,) = asyncio.run(rollout.collect(chat, {"policy": ScriptedSampler("policy"), "user": customer}))
    return group.trajectories[0], customer


@pytest.mark.usefixtures("retail")
def test_hidden_facts_are_in_the_context_of_the_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rollout, customer = talked(["Cancel a.", "Thanks. ###STOP###"], monkeypatch)
    assert not rollout.failure and rollout.stop_reason == "environment"
    assert all(HIDDEN in read[0]["content"] for read in customer.read) and len(customer.read) == 2
    decoded = [ScriptedSampler("policy").decode(s.token_ids) for s in rollout.segments]
    assert "cancel a." in decoded[2] and not any("hurry" in text for text in decoded)
    assert {s.actor for s in rollout.segments if s.trained} == {"policy"}


@pytest.mark.usefixtures("retail")
def test_what_a_user_read_is_in_the_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rollout, customer = talked(["Cancel a.", "Thanks. ###STOP###"], monkeypatch)
    found = next(fact for fact in rollout.facts if isinstance(fact, Requested))
    assert [(own["turn"], own["role"], own["wrote"]) for own in found.requests] == [
        (0, "user", "Cancel a."),
        (1, "user", "Thanks. ###STOP###"),
    ]
    read = [message for own in found.requests for message in own["read"]]
    assert read == [dict(message) for message in customer.read[-1]], "each message once, in order"
    assert sum(HIDDEN in message["content"] for message in read) == 1
    silent, _ = talked([], monkeypatch)
    assert silent.failure and not any(isinstance(fact, Requested) for fact in silent.facts)


@pytest.mark.usefixtures("retail")
def test_a_users_fault_is_no_answer_of_the_model_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    leaked, _ = talked([HIDDEN], monkeypatch)
    assert "ended by its user: user_leaked" in leaked.failure
    gone, _ = talked([], monkeypatch)
    assert "gave no answer: the endpoint is down" in gone.failure
    fine, _ = talked(["###STOP###"], monkeypatch)
    metrics = turn_metrics([leaked, gone, fine, replace(leaked, sample=3)])
    assert metrics["failures/user_leaked"] == 0.5 and metrics["turns"] == 1.0
    episode = leaked.fact(Episode)
    assert episode is not None and episode.verdict is None


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    argument = {"source": "tau2:retail", "arguments": {}, "view": "text", "calls": "hermes", "characters": 100}
    tau2_package.loaded.cache_clear()
    with pytest.raises(UserError, match=r"pip install 'posttrain\[tau2\]'"):
        Served(argument).perform({"order": "describe"})
    for source, own in (("mine.py:Shop", "role:user"), ("tau2:retail", "text")):
        with pytest.raises(
            ValidationError, match="only environments of tau2, textarena, open_spiel, pettingzoo have a user"
        ):
            Foreign(source=source, user=own)
    rows = Summarized(environment=Corridor())
    object.__setattr__(rows, "environment", Foreign(source="tau2:retail", user="role:bob"))
    with pytest.raises(UserError, match=r"has the role 'bob' write.*only rollout.kind=turns"):
        rows.check([Task(key="a", prompt="Go.")])


class Endless(Instance):
    async def step(self, action: str) -> Outcome:
        return Outcome(request=Request(role="user", prompt=({"role": "user", "content": "?"},)))

    async def reply(self, text: str) -> Outcome:
        return await self.step(text)


class Asking(Environment):
    def instance(self, task: Task, draw: Any) -> Instance:
        return Endless()


def test_requests_have_a_bound_and_need_a_writer() -> None:
    async def play(write: Any) -> None:
        async with Asking().open(Task(key="a", prompt="Go."), Random(0).random, None, write) as instance:
            await instance.step("a")

    async def write(request: Request) -> str:
        return "more"

    with pytest.raises(EnvironmentFailed, match="more than 32 texts"):
        asyncio.run(play(write))
    with pytest.raises(EnvironmentFailed, match="the role 'user' is to write"):
        asyncio.run(play(None))


def test_a_role_that_no_one_plays_is_refused_before_sampling() -> None:
    """Where a rollout lets no other role write, and where the recipe has no model of it."""
    world = Foreign(source="open_spiel:kuhn_poker", user="role:bob")
    with pytest.raises(UserError, match=r"has the role 'bob' write in its episodes, which no one does here"):
        Summarized(environment=world).check([Task(key="a", prompt="Go.")])
    alone = replace(Turns(environment=world), n=1)
    with pytest.raises(UserError, match="role 'bob'"):
        asyncio.run(alone.collect(Task(key="a", prompt="Go."), {"policy": ScriptedSampler("policy")}))
