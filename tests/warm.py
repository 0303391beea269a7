"""The posttrain command in processes that are forked from one in which its modules are loaded.

A new interpreter takes a second or more before a command begins; a forked process is the same, that second later.
`Warm` makes such a program, ``posttrain`` in a folder that can be put first on the path. It has the arguments, folder,
environment and open files of its caller; a signal that it gets goes to the command, and it ends as the command does.
What a command has imported, the next one finds loaded. It also stands in for the interpreter where a process of a
run is started as ``python -P -m MODULE``.

Tests of starting, of imports and of the installed program use the real one.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
POSSIBLE = hasattr(os, "pidfd_open")
"""Whether this system has what is used."""
LOADED = (
    *("posttrain.", "torch", "transformers", "ruamel", "duckdb", "numpy", "safetensors", "tokenizers", "jinja2"),
    *("pydantic", "rich", "click", "starlette", "uvicorn", "huggingface_hub", "httpx2"),
)
"""What is kept loaded, by how the names of modules start: nothing of a user's."""
BEFORE = "POSTTRAIN_TESTS_BEFORE"
"""Environment variable: Python code that is run before the command, in its process."""


class Warm:
    """The program, until `close`."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """`environment` is that in which modules are loaded."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._place = tempfile.TemporaryDirectory(prefix="warm-", dir="/tmp")  # the path of a socket is short
        self._address = f"{self._place.name}/socket"
        self.program = folder / "posttrain"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -ISE {HERE} call {self._address} "$@"\n')
        self.program.chmod(0o755)
        self._server = subprocess.Popen(
            [sys.executable, str(HERE), "serve", self._address],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout is not None and self._server.stdout.readline() == b"ready\n"

    def kill(self, caller: subprocess.Popen[str]) -> None:
        """Kill the command of a process that runs the program."""
        os.kill(int(Path(f"{self._address}.{caller.pid}").read_text()), signal.SIGKILL)

    def close(self) -> None:
        """End the process that is forked; commands in progress go on."""
        self._server.communicate()
        self._place.cleanup()


def call(address: str, arguments: Sequence[str]) -> None:
    """Have a command run with what this process has open; end as it ends."""
    given = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ), "caller": os.getpid()}
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [b"\0"], [0, 1, 2])
    connection.sendall(json.dumps(given).encode() + b"\n")
    with connection.makefile("r") as replies:
        process = int(replies.readline())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(process, number))
        code = os.waitstatus_to_exitcode(int(replies.readline()))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(address: str) -> Sequence[str]:
    """Fork for each call; returns in the process of a command, with its arguments."""
    sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE.parent]
    for name in ("torch", "posttrain.cli.run", "posttrain.runs.run"):
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # or each child would copy what its collections visit
    print("ready", flush=True)
    while 0 not in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        load(Path(f"{address}.modules"))
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return answer(connection, address)
        connection.close()
    os._exit(0)


def load(imported: Path) -> None:
    """Import what a command before has imported."""
    if imported.exists():
        for name in imported.read_text().split():
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        imported.unlink()
        gc.collect()
        gc.freeze()


def answer(connection: socket.socket, address: str) -> Sequence[str]:
    """Fork once more, for the command, and wait for its end; returns in the command's process, with its arguments."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("r") as lines:
        given = json.loads(lines.readline())
    child = os.fork()
    if not child:
        connection.close()
        return become(given, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    Path(f"{address}.{given['caller']}").write_text(str(child))
    connection.sendall(f"{child}\n".encode())
    ended = os.pidfd_open(child)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.kill(child, signal.SIGKILL)  # the caller is gone
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitpid(child, 0)[1]}\n".encode())
    os._exit(0)


def become(given: Mapping[str, Any], descriptors: Sequence[int]) -> Sequence[str]:
    """Take over the caller's open files, folder and environment; the command's arguments."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    tempfile.tempdir = None
    exec(os.environ.pop(BEFORE, ""), {})
    return list(given["arguments"])


def run() -> int:
    """Run the command of these arguments, or the module that they name; the exit code."""
    if sys.argv[1:3] != ["-P", "-m"]:
        from posttrain.cli import main as command

        return command()
    _, _, _, name, *arguments = sys.argv
    sys.argv = [name, *arguments]
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def main() -> None:
    """Either side; see `Warm`."""
    _, side, address, *arguments = sys.argv
    if side == "call":
        call(address, arguments)
    sys.argv = ["posttrain", *serve(address)]
    code = run()
    with contextlib.suppress(OSError):
        own = Path(f"{address}.modules-{os.getpid()}")
        own.write_text("\n".join(name for name in list(sys.modules) if name.startswith(LOADED)))
        own.rename(f"{address}.modules")
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()  # and no more: to take apart all that is loaded takes longer than many a command
    os._exit(code)


if __name__ == "__main__":
    main()
