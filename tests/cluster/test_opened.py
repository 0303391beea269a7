"""What is refused before Ray is started or joined, and the ports that its processes listen on."""

import importlib.util
import os
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from posttrain.cluster._ports import answers, listening, speaks_grpc
from posttrain.cluster.ray import Ray
from posttrain.errors import RunFailed, UserError

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_more_processes_than_the_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(2)))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    Ray(samplers=4, learners=4).check("cpu")
    with pytest.raises(
        UserError,
        match=r"samplers=40, .*learners=2, cluster\.scorers=0 and cluster\.graders=0 ask for 41 CPUs .* has 2 ",
    ):
        Ray(samplers=40, learners=2).check("cpu")


def test_without_ray_it_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[ray\]'"):
        Ray().check("cpu")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    token = tmp_path / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    with pytest.raises(UserError, match="there is no token"):
        Ray(address="auto").check("cpu")
    token.write_text("secret")
    token.chmod(0o644)
    with pytest.raises(UserError, match=f"chmod 600 {token}"):
        Ray(address="auto").check("cpu")
    token.chmod(0o600)
    Ray(address="auto").check("cpu")


def test_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(UserError, match="cluster=ray has processes on CPUs only, and this run is on cuda"):
        Ray().check("cuda")


def test_ports_that_a_process_listens_on_are_found() -> None:
    """One on all addresses and one on the loopback interface."""
    with socket.create_server(("0.0.0.0", 0)) as every, socket.create_server(("127.0.0.1", 0)) as here:
        found = {port.number: port for port in listening([os.getpid()])}
        own = {name: found[server.getsockname()[1]] for name, server in (("every", every), ("here", here))}
        assert own["every"].is_open and own["every"].address == "0.0.0.0"
        assert not own["here"].is_open and own["here"].address == "127.0.0.1"
        assert answers("127.0.0.1", own["here"].number)
    assert not answers("127.0.0.1", own["here"].number)
    assert listening([]) == []


def serving(answer: bytes) -> socket.socket:
    """A server that answers each connection so and closes it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.recv(64)
                connection.sendall(answer)
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return server


@needs_ray
def test_an_address_at_which_there_is_no_ray_is_refused_at_once() -> None:
    from posttrain.cluster._opened import join

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(UserError, match=f"nothing answers at 127.0.0.1:{port}; .* HOST:PORT"):
        join(f"127.0.0.1:{port}", {})
    with serving(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web, pytest.raises(UserError, match="is no Ray"):
        join(f"127.0.0.1:{web.getsockname()[1]}", {})


def test_a_server_of_grpc_greets_with_settings() -> None:
    """The head of a frame of 6 bytes, type 4; a frame of another type is none."""
    with serving(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + b"abcdef") as right:
        assert speaks_grpc("127.0.0.1", right.getsockname()[1])
    with serving(bytes([0, 0, 6, 1, 0, 0, 0, 0, 0]) + b"abcdef") as wrong:
        assert not speaks_grpc("127.0.0.1", wrong.getsockname()[1])


@needs_ray
@pytest.mark.parametrize(
    ("error", "address", "message"),
    [
        (RuntimeError("Version mismatch: here\n  Ray: 2.0.0"), "h:1", "install the same everywhere .*here Ray: 2.0.0"),
        (ConnectionError("Failed to connect"), "h:1", "RAY_AUTH_TOKEN"),
        (ConnectionError("Could not find"), "auto", "no Ray runs on this machine"),
        (ValueError("odd"), "h:1", "could not be joined: odd"),
    ],
)
def test_why_a_ray_was_not_joined_is_one_sentence(
    error: Exception, address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from posttrain.cluster._opened import join

    def refused(**settings: Any) -> None:
        raise error

    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)  # what a cluster of another test may have set
    monkeypatch.setattr(ray, "init", refused)
    monkeypatch.setattr("posttrain.cluster._opened.answers", lambda host, port: True)
    monkeypatch.setattr("posttrain.cluster._opened.speaks_grpc", lambda host, port: True)
    with pytest.raises(UserError, match=message) as found:
        join(address, {})
    assert "\n" not in str(found.value)


def test_nobody_else_comes_to_the_token_while_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray lets all users write to the folder of its files."""
    ray = pytest.importorskip("ray")
    from posttrain.cluster import _opened

    calls = list[Path]()

    def init(**options: Any) -> None:
        assert options["include_dashboard"] is False
        calls.append(Path(options["_temp_dir"]))
        calls[-1].mkdir(exist_ok=True)
        calls[-1].chmod(0o777)
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (token, token.parent)]
        assert modes == [0o600, 0o700] and token.parent == folder
        assert calls[-1].parent == folder, "a folder that others cannot enter"

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(_opened, "_read_environment_anew", lambda: None)
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    settings: Any = Ray()
    restore = _opened._environment(settings, folder)
    try:
        with _opened._joined(settings, folder):
            assert len(calls) == 1
    finally:
        restore()


def test_a_ray_that_is_not_there_in_time_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    from posttrain.cluster import _opened

    calls = list[str]()

    def init(**options: Any) -> None:
        calls.append(os.environ["POSTTRAIN_CLUSTER"])
        if len(calls) != 3:
            raise Exception("The current node timed out during startup. This could happen because some of the raylet")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    _opened._start({}, tmp_path)
    assert calls == [str(tmp_path)] * 3 and "POSTTRAIN_CLUSTER" not in os.environ
    with pytest.raises(RunFailed, match=r"did not start 3 times, .* this machine is too busy"):
        _opened._start({}, tmp_path)
