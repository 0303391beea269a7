"""Sockets, addresses and shutdown of the verbs that serve requests."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from posttrain.cli._connections import Limits


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `UserError` where the address or port is not available."""
    from posttrain.errors import UserError

    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot listen on {host} port {port}: {reason}; take another --port (0 finds one)") from None


async def answer(app: "ASGIApp", listening: socket.socket, limits: "Limits | None" = None) -> None:
    """Answers requests until a signal: the first finishes pending requests, the second stops at once.

    `limits` on connections are those of `posttrain.cli._connections` unless given.
    """
    import uvicorn

    from posttrain.cli._connections import Connections, Listening, limits_here, log_once, report

    connections = Connections(limits or limits_here())
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        backlog=1024,
        http=connections.protocol,  # type: ignore[arg-type]
    )
    log_once("uvicorn.error", "asyncio")
    server = uvicorn.Server(config)

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    @contextlib.contextmanager
    def ours() -> Iterator[None]:
        yield

    server.capture_signals = ours  # type: ignore[method-assign]  # the server's own would end the process by the signal
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    bounded = Listening(fileno=listening.detach())
    bounded.connections = connections
    await server.serve(sockets=[bounded])


def url_of(listening: socket.socket) -> str:
    """A URL to open on this machine, where a socket that listens on all addresses is reached by loopback."""
    where, port = listening.getsockname()[:2]
    where = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(where, where)
    return f"http://{f'[{where}]' if ':' in where else where}:{port}"


def reach_of(listening: socket.socket) -> str:
    """How other machines reach a socket that listens on all addresses, for a message; empty for other sockets."""
    where, port = listening.getsockname()[:2]
    if not ipaddress.ip_address(where.partition("%")[0]).is_unspecified:
        return ""
    return f", and on every address of this machine: http://{socket.gethostname()}:{port}"


def is_own_machine(address: str) -> bool:
    """Whether an address is a loopback address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
