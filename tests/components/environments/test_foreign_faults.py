"""Faults of environments through each adapter that runs the user's code: they cost their own episode alone."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from posttrain.components.environments import EnvironmentFailed, Outcome
from posttrain.components.environments.foreign import Foreign
from posttrain.errors import AlarmStop
from posttrain.grading.calls import MOST_CALLS
from posttrain.types import Task
from tests.components.environments.test_foreign import Story, story

NAMES = [
    *("hang", "spin", "exit", "die", "grow", "bytes", "long", "nan", "none", "deep", "fine"),
    *("leave", "leave and hang", "leave and die"),
]
FAULTS = """
import os, subprocess, sys, time
def fault(name):
    print("noise")
    if name == "hang": time.sleep(100)
    if name == "spin":
        while True: pass
    if name == "exit": raise SystemExit(7)
    if name == "die": os._exit(7)
    if name == "grow": return str(len(bytearray(4 << 30)))
    if name == "bytes": return b"x"
    if name == "long": return "y" * 10_000_000
    if name.startswith("leave"):
        sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
        with open(LEFT, "a") as file: print(subprocess.Popen(sleep, start_new_session=True).pid, file=file)
        fault(name[10:])
    if name == "deep":
        value = []
        for _ in range(100_000): value = [value]
        return value
    return name
"""
CLASSES = """
class Steps:
    def reset(self, seed): return "start"
    def step(self, name):
        if name in REWARDS: return name, REWARDS[name], False, False, {}
        return fault(name)
class Tools:
    def reset(self, seed): return "start"
    def do(self, name: str) -> str: return fault(name)
import gymnasium
class Numbers(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Text(10), gymnasium.spaces.Discrete(len(NAMES))
    def reset(self, seed=None, options=None): return "start", {}
    def step(self, action): return fault(NAMES[action]), REWARDS.get(NAMES[action], 0.0), False, False, {}
gymnasium.register("Faults-v0", Numbers, disable_env_checker=True)
REWARDS = {"nan": float("nan"), "none": None}
"""
SERVER = """
from mcp.server import MCPServer
app = MCPServer("s")
@app.tool()
def do(name: str) -> str:
    return fault(name)
@app.tool()
def change() -> str:
    app.remove_tool("do")
    return "changed"
if os.path.exists("up"):
    with open("starts", "a") as file: file.write("x")
    if open("up").read() == "no": raise SystemExit(1)
if os.path.exists("more"):
    @app.tool()
    def more() -> str: return "more"
app.run("stdio")
"""
CALL = '<tool_call>{{"name": "do", "arguments": {{"name": "{}"}}}}</tool_call>'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the run, with the environments in it."""
    head = f"NAMES, LEFT = {NAMES!r}, {str(tmp_path / 'left')!r}\n{FAULTS}"
    (tmp_path / "faulty.py").write_text(head + CLASSES)
    (tmp_path / "server.py").write_text(head + SERVER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def world(kind: str, folder: Path, seconds: float) -> Foreign:
    if kind == "gymnasium":
        pytest.importorskip("gymnasium")
    if kind == "mcp":
        pytest.importorskip("mcp")
    source = {
        "steps": f"{folder}/faulty.py:Steps",
        "tools": f"{folder}/faulty.py:Tools",
        "gymnasium": "faulty:Faults-v0",
        "mcp": f"mcp:python {folder}/server.py",
    }[kind]
    return Foreign(source=source, step_seconds=seconds, memory_mib=1024, repeatable=False)


def said(kind: str, name: str) -> str:
    return {"steps": name, "gymnasium": str(NAMES.index(name))}.get(kind, CALL.format(name))


def both(environment: Foreign, kind: str, name: str) -> tuple[Story | BaseException, Story | BaseException]:
    """An episode with a fault beside one without."""

    async def run() -> list[Story | BaseException]:
        turns = [[said(kind, name), said(kind, "fine")], [said(kind, "fine")] * 2]
        return await asyncio.gather(*(story(environment, own) for own in turns), return_exceptions=True)

    failed, other = asyncio.run(run())
    return failed, other


def texts(found: Story | BaseException) -> list[str]:
    assert not isinstance(found, BaseException), found
    return [outcome.observation.text for outcome in found[1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["steps", "tools", "gymnasium"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("hang", "longer than 5 s on the clock"),
        ("spin", "s of processor time"),
        ("exit", "SystemExit: 7"),
        ("die", "exit status 7"),
        ("grow", "more memory than the 1024 MiB"),
        ("bytes", "bytes were returned"),
        ("deep", "RecursionError"),
        ("nan", "the reward is nan"),
        ("none", "the reward is None"),
    ],
)
def test_a_fault_ends_its_episode_and_no_other(kind: str, name: str, why: str, folder: Path) -> None:
    if kind == "tools" and name in ("nan", "none"):
        pytest.skip("a tool returns no reward")
    seconds = 5.0 if name in ("hang", "spin") else 60.0  # a busy machine takes a while to start a process
    failed, other = both(world(kind, folder, seconds), kind, name)
    assert isinstance(failed, EnvironmentFailed) and why in str(failed)
    assert texts(other) == ["\nfine\n"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["steps", "tools", "gymnasium", "mcp"])
def test_ten_megabytes_are_cut_and_what_is_printed_goes_nowhere(kind: str, folder: Path) -> None:
    long, other = both(world(kind, folder, 60.0), kind, "long")
    assert texts(long) == [f"\n{'y' * 8000}[9992000 characters were cut]\n", "\nfine\n"]
    assert texts(other) == ["\nfine\n"] * 2


def gone(pids: list[int], seconds: float = 20.0) -> bool:
    """Whether all of them end."""
    until = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the system lists no processes")
@pytest.mark.parametrize("kind", ["steps", "gymnasium", "mcp"])
def test_no_process_outlives_its_episode(kind: str, folder: Path) -> None:
    """Whether the episode ends well, hangs, or dies; the processes have sessions of their own."""
    environment = world(kind, folder, 60.0 if kind == "mcp" else 5.0)
    well, _ = both(environment, kind, "leave")
    assert texts(well) == ["\nleave\n", "\nfine\n"]
    ends = ["leave and die"] if kind == "mcp" else ["leave and die", "leave and hang"]
    assert all(isinstance(both(environment, kind, name)[0], EnvironmentFailed) for name in ends)
    pids = [int(pid) for pid in (folder / "left").read_text().split()]
    assert len(pids) == len(ends) + 1
    assert gone(pids)


@pytest.mark.slow
def test_a_server_may_die_and_change_its_tools(folder: Path) -> None:
    """A call of a tool that went has an error, alone; an episode whose server comes up with others fails."""
    environment = world("mcp", folder, 60.0)
    failed, other = both(environment, "mcp", "die")
    assert isinstance(failed, EnvironmentFailed) and "the server ended" in str(failed)
    assert texts(other) == ["\nfine\n"] * 2
    turns = ['<tool_call>{"name": "change"}</tool_call>', CALL.format("fine")]
    changed = asyncio.run(story(environment, turns))
    assert texts(changed)[0] == "\nchanged\n" and texts(changed)[1].startswith("\nerror: ")
    assert not changed[1][1].valid and changed[3]["failed_calls"] == 1
    (folder / "more").touch()
    with pytest.raises(EnvironmentFailed, match="tools are not those that it had before the run"):
        asyncio.run(story(environment, []))


def test_five_hundred_calls_in_a_turn_and_no_end(folder: Path) -> None:
    """As many calls run as a turn may have; an episode without an end goes on as long as it is played."""
    turn: Outcome
    _, (turn,), _, measures = asyncio.run(story(world("tools", folder, 60.0), [CALL.format("fine") * 500]))
    assert measures["calls"] == MOST_CALLS and measures["failed_calls"] == 500 - MOST_CALLS
    assert turn.observation.text.count(">fine<") == MOST_CALLS and not turn.done
    _, turns, *_ = asyncio.run(story(world("steps", folder, 60.0), ["fine"] * 200))
    assert len(turns) == 200 and not turns[-1].done


@pytest.mark.slow
def test_a_real_server_that_stays_down_is_started_four_times_and_stops_the_run(folder: Path) -> None:
    """An episode beside it, whose server is up already, has its answers; the next one has none."""
    server = world("mcp", folder, 30.0)
    (folder / "up").write_text("yes")
    assert [tool["name"] for tool in server.described["tools"]] == ["do", "change"]
    assert texts(asyncio.run(story(server, [CALL.format("fine")]))) == ["\nfine\n"]
    (folder / "up").write_text("no")
    started = len((folder / "starts").read_text())
    with pytest.raises(AlarmStop, match=r"is down: it did not come up in 4 starts.*posttrain resume RUN") as stopped:
        asyncio.run(story(server, [CALL.format("fine")]))
    assert stopped.value.exit_code == 3 and len((folder / "starts").read_text()) == started + 4
    (folder / "up").write_text("yes")
    assert texts(asyncio.run(story(server, [CALL.format("fine")]))) == ["\nfine\n"]


@pytest.mark.slow
def test_a_server_gets_the_import_path_and_the_variables_that_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module beside the script, one on PYTHONPATH, and a variable; a key of the run's stays with it."""
    pytest.importorskip("mcp")
    (folder / "away").mkdir()
    (folder / "away" / "distant.py").write_text("TEXT = 'distant'\n")
    (folder / "beside.py").write_text("TEXT = 'beside'\n")
    (folder / "server.py").write_text(
        "import os, beside, distant\nfrom mcp.server import MCPServer\napp = MCPServer('s')\n@app.tool()\n"
        "def do(name: str) -> str:\n    own = [os.environ.get(key, '-') for key in ('SHOP_URL', 'SECRET_KEY')]\n"
        "    return ' '.join([beside.TEXT, distant.TEXT, *own])\napp.run('stdio')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder / "away"))
    monkeypatch.setenv("SHOP_URL", "there")
    monkeypatch.setenv("SECRET_KEY", "hidden")
    server = replace(world("mcp", folder, 30.0), arguments={"environment": ["SHOP_URL"]})
    assert texts(asyncio.run(story(server, [CALL.format("fine")]))) == ["\nbeside distant there -\n"]


OPENENV = """
import os, sys, uvicorn
from openenv.core import Action, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app
class Say(Action):
    message: str
class Heard(Observation):
    echo: str
class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def reset(self, seed=None, episode_id=None, **more): return Heard(echo=f"seed {seed}")
    def step(self, action, timeout_s=None, **more):
        return Heard(echo=action.message, reward=1.0, done=action.message == "end")
    @property
    def state(self): return State()
app = create_fastapi_app(Echo, Say, Heard, max_concurrent_envs=8)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


@contextmanager
def openenv_server(folder: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A real server, once it listens."""
    (folder / "echo_server.py").write_text(OPENENV)
    process = subprocess.Popen([sys.executable, "echo_server.py", str(port)], cwd=folder)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_real_server_of_openenv_that_dies_ends_its_episodes_and_stops_the_run(folder: Path) -> None:
    """With kill -9, in the middle of an episode; once it is up again, episodes go on."""
    pytest.importorskip("openenv.core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"openenv:http://127.0.0.1:{port}"
    world = Foreign(source=address, arguments={"field": "message"}, step_seconds=120.0, memory_mib=None)
    heard = ["\nhello\n", "\nend\n"]
    task = Task(key="a", prompt="Go.")

    async def cut_off(server: "subprocess.Popen[bytes]") -> None:
        async with world.open(task, Random(0).random) as one, world.open(task, Random(1).random) as other:
            assert [one.begin().text.strip(), other.begin().text.strip()] == [
                f"seed {zlib.crc32(b'environment:a')}"
            ] * 2
            assert (await one.step("hello")).reward == 1.0
            server.kill()
            server.wait()
            failures = await asyncio.gather(one.step("on"), other.step("on"), return_exceptions=True)
            assert all(isinstance(failure, EnvironmentFailed) for failure in failures), failures

    with openenv_server(folder, port) as server:
        world.check([task])
        assert texts(asyncio.run(story(world, ["hello", "end"]))) == heard
        asyncio.run(cut_off(server))
    with pytest.raises(AlarmStop, match=r"is down: it did not answer 4 calls.*posttrain resume RUN") as stopped:
        asyncio.run(story(world, ["hello"]))
    assert stopped.value.exit_code == 3
    with openenv_server(folder, port):
        assert texts(asyncio.run(story(world, ["hello", "end"]))) == heard
