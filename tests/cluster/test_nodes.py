"""A second machine that is killed: the run's numbers are those of one process all the same.

The second machine is a node of Ray in a network of its own, behind a cable; so this needs root.
"""

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cluster._ports import free_port
from posttrain.cluster.ray import Ray
from posttrain.engines.native import Native
from posttrain.policies.folder import new_folder
from posttrain.runs.context import RunContext
from tests.cluster.running import on, run, scored, small

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
needs_root = pytest.mark.skipif(
    os.environ.get("POSTTRAIN_MACHINES") != "1" or os.geteuid() != 0 or shutil.which("ip") is None,
    reason="asked for by POSTTRAIN_MACHINES=1: a network of its own needs root and ip, and changes the machine's",
)
HEALTH = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 300, "health_check_timeout_ms": 500}
"""Settings of Ray, by which a node that does not answer is dead after seconds instead of a minute."""


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, timeout=20)


class Machine:
    """A node of Ray, with all its processes in one session."""

    def __init__(self, *arguments: str, environment: dict[str, str], inside: str = "") -> None:
        prefix = ["ip", "netns", "exec", inside] if inside else []
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *arguments],
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def end(self) -> None:
        """End all its processes at the same moment."""
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError, ValueError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == self.process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
        self.process.communicate(timeout=60)


class Machines:
    """The first machine, and a second one behind a cable."""

    def __init__(self, folder: Path) -> None:
        self.name, self.cable = f"pt{os.getpid()}", f"ptv{os.getpid()}"
        self.folder = folder
        token = folder / "token"
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        own = {f"RAY_{name}": str(value) for name, value in HEALTH.items()} | {
            "RAY_health_check_failure_threshold": "3"
        }
        own |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
        self.environment = own
        ip("netns", "add", self.name)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "far", "netns", self.name)
        ip("addr", "add", "10.213.7.1/24", "dev", self.cable)
        ip("link", "set", self.cable, "up")
        for words in (("addr", "add", "10.213.7.2/24", "dev", "far"), ("link", "set", "far", "up")):
            ip("-n", self.name, *words)
        ip("-n", self.name, "link", "set", "lo", "up")
        self.address = f"10.213.7.1:{free_port('10.213.7.1')}"
        host, _, port = self.address.partition(":")
        place = ["--head", f"--node-ip-address={host}", f"--port={port}", "--include-dashboard=false"]
        self.first = self._machine(*place, f"--temp-dir={folder}/ray")
        self.second = self.join()

    def _machine(self, *arguments: str, inside: str = "") -> Machine:
        store = ["--num-cpus=1", "--object-store-memory=100000000"]
        return Machine(*store, *arguments, environment={**os.environ, **self.environment}, inside=inside)

    def join(self) -> Machine:
        """Have the second machine join, or join anew."""
        self.second = self._machine(f"--address={self.address}", "--node-ip-address=10.213.7.2", inside=self.name)
        return self.second

    def close(self) -> None:
        """End both, and take the cable away."""
        for machine in (self.second, self.first):
            with suppress(subprocess.TimeoutExpired):
                machine.end()
        ip("link", "del", self.cable, check=False)
        ip("netns", "del", self.name, check=False)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = Path(tmp_path_factory.mktemp("m", numbered=True))
    machines = Machines(folder)
    try:
        yield machines
    finally:
        machines.close()


@pytest.fixture(scope="module")
def session(machines: Machines) -> Iterator[Any]:
    """A sampler on each machine, which has room for one."""
    from posttrain.cluster._opened import opened

    torch.set_num_threads(1)
    before = {name: os.environ.get(name) for name in machines.environment}
    os.environ.update(machines.environment)
    try:
        wait_for_nodes(machines.address, 2)
        with opened(Ray(samplers=2, address=machines.address, timeout=30.0), Native(slots=16), 0) as session:
            yield session
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def wait_for_nodes(address: str, count: int) -> None:
    """Ask from another process, since this one joins later."""
    code = (
        "import time, ray\n"
        f"ray.init(address='{address}', log_to_driver=False, configure_logging=False)\n"
        f"while ray.cluster_resources().get('CPU', 0) < {count}: time.sleep(.1)\n"
    )
    for _ in range(5):
        if subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True).returncode == 0:
            return
        time.sleep(1.0)
    pytest.fail(f"{count} nodes are not there")


def far(session: Any) -> list[Any]:
    return [member for member in session.samplers if not member.is_near]


@needs_root
def test_work_moves_from_a_machine_that_is_killed_where_no_other_has_room(
    machines: Machines, session: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=7)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr("posttrain.cluster._session.PATIENCE", 1.0)
    assert len(session.samplers) == 2 and len(far(session)) == 1
    before, calls = RunContext.server, list[int]()

    def server(context: RunContext, policy: Any) -> Any:
        calls.append(1)
        if len(calls) == 12:
            machines.second.end()
        return before(context, policy)

    monkeypatch.setattr(RunContext, "server", server)
    assert run(recipe, tmp_path / "ray") == alone
    assert len(session.samplers) == 1 and not far(session)
    events = (tmp_path / "ray" / "grpo-1" / "events.jsonl").read_text()
    assert "there is no place for another" in events


def cut(machines: Machines) -> None:
    ip("link", "set", machines.cable, "down")


def leave(machines: Machines) -> None:
    """Announce that the second machine is about to leave; it is ended by the test."""
    code = (
        f"import ray; ray.init(address='{machines.address}', log_to_driver=False, configure_logging=False); "
        "print(*(node['NodeID'] for node in ray.nodes() "
        "if node['Alive'] and node['NodeManagerAddress'] == '10.213.7.2'))"
    )
    found = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True, check=True)
    (node,) = found.stdout.split()
    words = [f"--address={machines.address}", f"--node-id={node}", "--reason=DRAIN_NODE_REASON_PREEMPTION"]
    words += ["--reason-message=preempted", "--deadline-remaining-seconds=60"]
    subprocess.run([sys.executable, "-m", "ray.scripts.scripts", "drain-node", *words], check=True, timeout=60)


@needs_root
@pytest.mark.parametrize("ends", [None, cut, leave])
def test_a_machine_that_joins_anew_is_used_again(
    ends: Callable[[Machines], None] | None,
    machines: Machines,
    session: Any,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After it was killed, by the test before, or its link was cut for longer than Ray waits, or it left."""
    recipe = scored(small("grpo", tiny), tmp_path, steps=7)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr("posttrain.cluster._session.PATIENCE", 1.0)
    if ends is not None:
        before, calls = RunContext.server, list[int]()

        def server(context: RunContext, policy: Any) -> Any:
            calls.append(1)
            if len(calls) == 12:
                ends(machines)
            return before(context, policy)

        assert len(far(session)) == 1
        with monkeypatch.context() as during:
            during.setattr(RunContext, "server", server)
            assert run(recipe, tmp_path / "without") == alone
        assert len(session.samplers) == 1 and not far(session)
        if ends is leave:
            events = (tmp_path / "without" / "grpo-1" / "events.jsonl").read_text()
            assert "its machine is about to leave" in events
        ip("link", "set", machines.cable, "up")
        machines.second.end()
    machines.join()
    until = time.monotonic() + 90.0
    for number in range(100):
        assert run(recipe, tmp_path / f"again{number}") == alone
        if far(session) or time.monotonic() > until:
            break
    assert len(session.samplers) == 2 and len(far(session)) == 1
