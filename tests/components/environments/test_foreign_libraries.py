"""Adapters of libraries by stand-ins of the same interface, and by the libraries themselves where they are there."""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.components.environments import Contained, Instance
from posttrain.components.environments._foreign import ServerDown, make, servers
from posttrain.components.environments._foreign.serving import Served
from posttrain.components.environments.foreign import Foreign
from posttrain.errors import AlarmStop, UserError


class Guess:
    """GEM's interface."""

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.number, self.turns = (seed or 0) % 9, 0
        return "Guess.\n", {"suffix": "Your guess?"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        right = str(self.number) in action
        return "Right." if right else "No.", float(right), right, self.turns == 2, {"suffix": "Again?"}


def test_gem(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    library = SimpleNamespace(make=lambda name, **given: made.update(name=name, **given) or Guess())
    monkeypatch.setitem(sys.modules, "gem", library)
    game = make("gem:game:Guess-v0", {"turns": 2}, "text", "hermes")
    assert made == {"name": "game:Guess-v0", "turns": 2}
    assert game.reset(13, {}).text == "Guess.\nYour guess?"
    wrong = game.step("1")
    assert (wrong.text, wrong.reward, wrong.terminated) == ("No.\nAgain?", 0.0, False)
    right = game.step("it is 4")
    assert (right.text, right.reward, right.terminated, right.truncated) == ("Right.", 1.0, True, False)


def test_gem_ends_where_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gem", SimpleNamespace(make=lambda name, **given: Guess()))
    game = make("gem:game:Guess-v0", {}, "text", "hermes")
    game.reset(0, {})
    seen = [game.step("no") for _ in range(2)]
    assert [own.truncated for own in seen] == [False, True]
    assert not seen[1].terminated


class Kitchen:
    """TextWorld's interface: two commands win two points."""

    plan = ("open box", "take key")

    def seed(self, seed: int) -> None:
        self.seeded = seed

    def reset(self) -> Any:
        self.done = 0
        return self._state("A box.\n\n")

    def step(self, command: str) -> tuple[Any, float, bool]:
        right = command == self.plan[self.done]
        self.done += right
        return self._state("Done." if right else "Nothing happens."), self.done, self.done == 2

    def close(self) -> None:
        pass

    def _state(self, text: str) -> Any:
        return SimpleNamespace(
            feedback=text,
            admissible_commands=["look", *self.plan],
            policy_commands=list(self.plan[self.done :]),
            score=self.done,
            max_score=2,
            won=self.done == 2,
            lost=False,
        )


def test_textworld(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    asked: dict[str, Any] = {}
    library = SimpleNamespace(EnvInfos=lambda **given: asked.update(given), start=lambda file, request_infos: Kitchen())
    monkeypatch.setitem(sys.modules, "textworld", library)
    with pytest.raises(UserError, match="no file"):
        make(f"textworld:{tmp_path}/none.z8", {}, "text", "hermes")
    (tmp_path / "a.z8").write_text("")
    game = make(f"textworld:{tmp_path}/a.z8", {"inventory": True}, "text", "hermes")
    assert asked["admissible_commands"] and asked["inventory"]
    first = game.reset(0, {})
    assert (first.text, first.legal) == ("A box.", ["look", "open box", "take key"])
    assert not game.step(" \n").valid
    assert game.step("look").reward == 0.0
    assert game.solution() == "open box"
    assert game.step("open box\nand more").reward == 0.5
    state = game.snapshot()
    assert state == ["look", "open box"]
    last = game.step("take key")
    assert (last.reward, last.terminated, last.legal, game.solution()) == (0.5, True, None, None)
    game.restore(state)
    assert game.solution() == "take key"
    assert game.step("take key").terminated


class Echo:
    """OpenEnv's generic client, over a connection that fails `broken` times."""

    broken = 0
    sent: list[Any] = []  # noqa: RUF012

    def __init__(self, base_url: str) -> None:
        self.address = base_url

    def sync(self) -> "Echo":
        return self

    def connect(self) -> None:
        if Echo.broken:
            Echo.broken -= 1
            raise ConnectionError("refused")

    def reset(self, seed: int) -> Any:
        return SimpleNamespace(observation={"echo": f"seed {seed}", "done": False}, reward=None, done=False)

    def step(self, action: Any) -> Any:
        Echo.sent.append(action)
        ended = action.get("message") == "end"
        return SimpleNamespace(observation={"a": 1, "b": [0.5], "metadata": {}}, reward=2.0, done=ended)

    def close(self) -> None:
        pass


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    Echo.broken, Echo.sent = 0, []
    monkeypatch.setitem(sys.modules, "openenv", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "openenv.core", SimpleNamespace(GenericEnvClient=Echo))
    monkeypatch.setattr(servers, "WAIT", 0.0)
    return Echo.sent


def test_openenv(echo: list[Any]) -> None:
    world = make("openenv:http://localhost:8000", {"field": "message"}, "text", "hermes")
    assert world.reset(5, {}).text == "seed 5"
    seen = world.step("hello")
    assert (seen.text, seen.reward, seen.terminated) == ("{a: 1, b: [0.5]}", 2.0, False)
    assert world.step('{"message": "end", "n": 1}').terminated
    assert echo == [{"message": "hello"}, {"message": "end", "n": 1}]
    world.close()
    strict = make("openenv:http://localhost:8000", {}, "text", "hermes")
    strict.reset(0, {})
    assert not strict.step("hello").valid
    assert not strict.step("[1]").valid
    with pytest.raises(UserError, match="address"):
        make("openenv:localhost", {}, "text", "hermes")


def test_after_the_end_no_adapter_is_called(echo: list[Any]) -> None:
    """Some libraries answer all the same."""
    source = {"source": "openenv:http://localhost:8000", "arguments": {}, "view": "text", "calls": "hermes"}
    served = Served({**source, "characters": 100})
    for _ in range(2):
        served.perform({"order": "reset", "seed": 1, "chance": 1, "fields": {}})
        assert served.perform({"order": "step", "action": '{"message": "end"}'})["terminated"]
        with pytest.raises(RuntimeError, match="the episode is over"):
            served.perform({"order": "step", "action": '{"message": "more"}'})
    assert echo == [{"message": "end"}] * 2


def test_openenv_is_called_four_times_in_all(echo: list[Any]) -> None:
    Echo.broken = 3
    world = make("openenv:http://localhost:8000", {}, "text", "hermes")
    assert world.reset(1, {}).text == "seed 1"
    Echo.broken = 4
    with pytest.raises(ServerDown, match="did not answer 4 calls"):
        world.reset(1, {})


class Connection:
    """The client of an MCP server that comes up once `broken` starts have failed."""

    broken = 0

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    async def __aenter__(self) -> "Connection":
        Connection.broken -= 1
        if Connection.broken >= 0:
            raise ConnectionError("it is not up")
        return self

    async def __aexit__(self, *given: object) -> None:
        pass

    async def list_tools(self) -> Any:
        return SimpleNamespace(tools=[SimpleNamespace(name="look", description="", input_schema={})])


def test_a_server_is_started_four_times_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(Client=Connection, StdioServerParameters=lambda **given: given)
    monkeypatch.setitem(sys.modules, "mcp", library)
    monkeypatch.setattr(servers, "WAIT", 0.0)
    Connection.broken = 3
    server = make("mcp:python server.py", {}, "text", "hermes")
    assert list(server.tools) == ["look"]  # type: ignore[attr-defined]
    server.close()
    Connection.broken = 4
    with pytest.raises(ServerDown, match="did not come up in 4 starts"):
        make("mcp:python server.py", {}, "text", "hermes")


def test_a_tool_that_a_server_names_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Connection):
        async def list_tools(self) -> Any:
            return SimpleNamespace(tools=2 * (await super().list_tools()).tools)

    library = SimpleNamespace(Client=Twice, StdioServerParameters=lambda **given: given)
    monkeypatch.setitem(sys.modules, "mcp", library)
    Connection.broken = 0
    with pytest.raises(UserError, match=r"it has two tools of one name: \['look', 'look'\]"):
        make("mcp:python server.py", {}, "text", "hermes")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"environment": ["NOT_SET_HERE"]}, "the variable NOT_SET_HERE, which is not set here"),
        ({"environment": "PATH"}, "a list of names of variables"),
        ({"size": 3}, "Arguments of the script are in its command"),
    ],
)
def test_what_a_server_cannot_get_is_refused(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        servers.variables(arguments)


@pytest.mark.parametrize(("source", "extra"), [("gem:game:A-v0", "gem"), ("textworld:a.z8", "textworld")])
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, source: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    argument = {"source": source, "arguments": {}, "view": "text", "calls": "hermes", "characters": 100}
    with pytest.raises(UserError, match=rf"pip install 'posttrain\[{extra}\]'"):
        Served(argument).perform({"order": "describe"})


def test_gem_itself() -> None:
    pytest.importorskip("gem")
    game = make("gem:game:Mastermind-v0-easy", {}, "text", "hermes")
    assert "Enter your" in game.reset(3, {}).text
    assert not game.step("\\boxed{12}").terminated


def test_a_server_that_is_down_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker sends why, and neither an episode nor the run goes on."""
    monkeypatch.setitem(sys.modules, "openenv", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "openenv.core", SimpleNamespace(GenericEnvClient=Echo))
    monkeypatch.setattr(servers, "WAIT", 0.0)
    argument = {"source": "openenv:http://localhost:8000", "arguments": {}, "view": "text", "calls": "hermes"}
    Echo.broken = 4
    answer = Served({**argument, "characters": 100}).perform({"order": "reset", "seed": 1, "chance": 1, "fields": {}})
    assert "did not answer 4 calls" in answer["down"]
    world = Foreign(source="openenv:http://localhost:8000")
    with pytest.raises(AlarmStop, match="is down: it did not answer 4 calls") as found:
        world.stop_if_down(answer)
    assert found.value.exit_code == 3
    world.stop_if_down({"text": "up"})


class Down(Instance):
    async def start(self) -> None:
        raise AlarmStop("the server is down")


def test_a_stop_is_no_failure_of_an_episode() -> None:
    async def begin() -> None:
        await Contained(Down()).start()

    with pytest.raises(AlarmStop, match="the server is down"):
        asyncio.run(begin())
