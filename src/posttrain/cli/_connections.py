"""Limits on the connections of `posttrain serve` and `posttrain view`.

A client can hold a connection open, send half a request, or read nothing. So there is a bound on open
connections, below the descriptors of the process, and on the time that a connection may spend in each phase:

    request    it waits for a whole request line and headers (also between two requests)
    body       headers have come, the body has not
    answer     the server works; no limit, except that a client that reads nothing is dropped

Where there is no room, a new connection takes the place of the oldest in the phase, of the first two, in which most
are: those who flood the server with one kind of connection lose theirs. Each cause of a log line is logged once.
"""

import asyncio
import contextlib
import logging
import os
import resource
import socket
from dataclasses import dataclass
from typing import Any, Final, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

Phase = Literal["request", "body", "answer", "closing"]

MOST: Final = 2048
"""Open connections, where the process may have that many descriptors."""
RESERVED: Final = 24
"""Descriptors left for files, and for connections that are being closed."""
BATCH: Final = 8
"""Connections accepted between two turns of the event loop, after which closed ones have given back descriptors."""
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Length: 40\r\n\r\nall connections are in use; retry later\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a connection may take."""

    connections: int = MOST
    request_seconds: float = 15.0
    """Until the headers of a request are there, since the connection was made or the last response was sent."""
    body_seconds: float = 60.0
    """From the headers until the whole body is there."""
    write_seconds: float = 30.0
    """In which a client must read what waits for it."""
    last_write_seconds: float = 2.0
    """The same after the server was stopped."""


def limits_here() -> Limits:
    """The limits for this process, after raising its soft limit of descriptors to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = MOST if soft == resource.RLIM_INFINITY else soft - len(os.listdir("/dev/fd")) - RESERVED
    return Limits(connections=max(4, min(MOST, room)))


class Connections:
    """The open connections of a server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.accepted = 0
        """Sockets whose connection has not been made yet."""
        self._open: dict[Connection, None] = {}

    def protocol(self, **given: Any) -> "Connection":
        """A connection, as uvicorn makes them."""
        return Connection(self, **given)

    def add(self, connection: "Connection") -> None:
        """Count a connection."""
        self.accepted -= 1
        self._open[connection] = None

    def discard(self, connection: "Connection") -> None:
        """Count it no longer."""
        self._open.pop(connection, None)

    def make_room(self) -> bool:
        """Whether one more may be open, after dropping the one that has waited longest for its client if need be."""
        if len(self._open) + self.accepted < self.limits.connections:
            return True
        waiting: dict[Phase, list[Connection]] = {"closing": [], "request": [], "body": []}
        for connection in self._open:
            waiting.get(connection.phase, []).append(connection)
        most = max(waiting.values(), key=len)
        if not most:
            return False
        oldest = min(most, key=lambda connection: connection.since)
        self.discard(oldest)
        oldest.drop()
        return True


class Listening(socket.socket):
    """A listening socket that keeps to the limit of connections, which asyncio by itself has none of."""

    connections: Connections
    _accepted_in_a_row = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; raises `BlockingIOError` to let the event loop run, where more may be waiting."""
        self._accepted_in_a_row = (self._accepted_in_a_row + 1) % (BATCH + 1)
        if not self._accepted_in_a_row:
            raise BlockingIOError
        accepted, address = super().accept()
        if not self.connections.make_room():
            with contextlib.suppress(OSError), accepted:
                accepted.setblocking(False)
                accepted.send(BUSY)
            raise BlockingIOError
        self.connections.accepted += 1
        return accepted, address


class Connection(H11Protocol):
    """An HTTP connection with limits of time."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.phase: Phase = "request"
        self.since = 0.0
        self._connections = connections
        self._limits = connections.limits
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._connections.add(self)
        self._enter("request")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._connections.discard(self)
        self._enter("answer")
        self._reading_again()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; the time of a phase does not start anew with it."""
        if self.phase == "closing":
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the rest."""
        super().on_response_complete()
        self._enter("closing" if self.transport.is_closing() else "request")
        if self.phase == "request":
            self._look()

    def timeout_keep_alive_handler(self) -> None:
        """The limit of the phase does this."""

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        super().pause_writing()
        stopping = self.cycle is not None and not self.cycle.keep_alive
        self._limit_writing(self._limits.last_write_seconds if stopping else self._limits.write_seconds)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._reading_again()

    def shutdown(self) -> None:
        """Finish a request that has come whole; drop everything else."""
        if self.phase != "answer":
            self.drop()
            return
        super().shutdown()
        if self._write_timer is not None:
            self._limit_writing(self._limits.last_write_seconds)

    def drop(self) -> None:
        """End the connection at once, whatever is still to be sent."""
        self.transport.abort()

    def _look(self) -> None:
        """Find the phase after something came."""
        if self.transport.is_closing():
            self._enter("closing")
        elif self.cycle is None or self.cycle.response_complete:
            self._enter("request", anew=False)
        elif self.cycle.more_body and self.conn.their_state is h11.SEND_BODY:
            self._enter("body", anew=False)
        else:
            self._enter("answer")

    def _enter(self, phase: Phase, *, anew: bool = True) -> None:
        if phase == self.phase and self._timer is not None and not anew:
            return
        self.phase, self.since = phase, self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = {
            "request": self._limits.request_seconds,
            "body": self._limits.body_seconds,
            "closing": self._limits.write_seconds,
        }.get(phase)
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self.drop)

    def _limit_writing(self, seconds: float) -> None:
        self._reading_again()
        self._write_timer = self.loop.call_later(seconds, self.drop)

    def _reading_again(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


class OncePerCause(logging.Filter):
    """Passes the first record of each cause: a logger's message before its arguments, and the kind of the exception."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[str, str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is the first of its cause."""
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        cause = record.name, str(record.msg)[:80], kind
        if cause in self._seen or len(self._seen) >= 1000:
            return False
        self._seen.add(cause)
        return True


def log_once(*loggers: str) -> None:
    """Let loggers log each cause once."""
    for name in loggers:
        logging.getLogger(name).addFilter(OncePerCause())


def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in a line what an event loop could not hand to anything else."""
    error = context.get("exception")
    what = f"{type(error).__name__}: {error}" if error is not None else ""
    logging.getLogger("asyncio").error(f"{context['message']} %s", what.splitlines()[0] if what else "")
