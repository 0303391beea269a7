"""Sockets, addresses and shutdown of the verbs that serve requests."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uvicorn


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on. Raises `UserError` where there is none to be had."""
    from posttrain.errors import UserError

    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot listen on {host} port {port}: {reason}; take another --port (0 finds one)") from None


async def answer(server: "uvicorn.Server", listening: socket.socket) -> None:
    """Answer until a signal asks to stop: the first finishes what was begun, the second does not wait for it."""

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    @contextlib.contextmanager
    def ours() -> Iterator[None]:
        yield

    server.capture_signals = ours  # type: ignore[method-assign]  # the server's own would end the process by the signal
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[listening])


def url_of(listening: socket.socket) -> str:
    """Where a browser finds it."""
    where, port = listening.getsockname()[:2]
    return f"http://{f'[{where}]' if ':' in where else where}:{port}"


def is_own_machine(address: str) -> bool:
    """Whether only programs of this machine can reach an address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
