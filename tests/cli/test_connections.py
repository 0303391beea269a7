"""Limits on connections, in a server that runs in this process. Times are limits that pass; none is measured."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from posttrain.cli._connections import RESERVED, Limits, OncePerCause, limits_here
from posttrain.cli._listening import answer, listen

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
HALF_HEADERS = b"GET /health HTTP/1.1\r\nHost: x\r\nX-More: "
HALF_BODY = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"
PATIENT = Limits(connections=8, request_seconds=600, body_seconds=600, write_seconds=600, last_write_seconds=0.1)
"""Limits of which none is reached but the number."""

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def _echo(request: Request) -> Response:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def _much(request: Request) -> Response:
    async def pieces() -> Any:
        try:
            while True:
                yield b"x" * 2**20
                await asyncio.sleep(0)
        finally:
            request.app.state.ended.set()

    return StreamingResponse(pieces())


def served(limits: Limits, work: Callable[..., Awaitable[Any]]) -> Any:
    """What the work gives; the server is asked to stop when it is done, and must end."""

    async def waits(request: Request) -> Response:
        await asyncio.sleep(0.2)
        return PlainTextResponse("finished")

    app = Starlette(
        routes=[
            Route("/health", lambda request: PlainTextResponse("well")),
            Route("/echo", _echo, methods=["POST"]),
            Route("/much", _much),
            Route("/waits", waits),
        ]
    )

    async def run() -> Any:
        app.state.ended = asyncio.Event()
        listening = listen("127.0.0.1", 0)
        port = listening.getsockname()[1]
        server = asyncio.ensure_future(answer(app, listening, limits))

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port)

        result = await (work(connect, app.state.ended) if work.__name__ == "reads_nothing" else work(connect))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(server, 60)
        return result

    return asyncio.run(run())


async def healthy(connect: Connect) -> bool:
    reader, writer = await connect()
    writer.write(HEALTH)
    found = await reader.readuntil(b"well")
    writer.close()
    return found.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", HALF_HEADERS, HALF_BODY])
def test_more_connections_than_there_may_be_stop_nobody(sent: bytes) -> None:
    async def work(connect: Connect) -> tuple[bool, int]:
        open_ones = []
        for _ in range(50):
            reader, writer = await connect()
            writer.write(sent)
            await asyncio.sleep(0)
            open_ones.append((reader, writer))
        well = await healthy(connect)
        ended = await asyncio.gather(*(_has_ended(reader) for reader, _ in open_ones[:42]))
        return well, sum(ended)

    assert served(PATIENT, work) == (True, 42), "the oldest made room"


async def _has_ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"", {"request_seconds": 0.1}),
        (HALF_HEADERS, {"request_seconds": 0.1}),
        (HALF_BODY, {"body_seconds": 0.1}),
        (HEALTH, {"request_seconds": 0.1}),
    ],
)
def test_a_connection_that_waits_for_its_client_is_dropped(sent: bytes, limits: dict[str, float]) -> None:
    async def work(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(sent)
        await asyncio.wait_for(_has_ended_after_all(reader), 60)

    base = {"connections": 8, "request_seconds": 600.0, "body_seconds": 600.0, "write_seconds": 600.0}
    served(Limits(**{**base, **limits}), work)  # type: ignore[arg-type]


async def _has_ended_after_all(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(2**16):
            pass
    except ConnectionError:
        pass


def test_a_client_that_sends_drop_by_drop_has_no_more_time() -> None:
    """Each piece arrives in time, the request does not."""

    async def work(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(HALF_HEADERS)
        ended = asyncio.ensure_future(_has_ended_after_all(reader))
        while not ended.done():
            writer.write(b"a")
            await asyncio.sleep(0.02)

    served(Limits(connections=8, request_seconds=0.2), work)


def test_a_client_that_reads_nothing_is_dropped() -> None:
    async def reads_nothing(connect: Connect, ended: asyncio.Event) -> None:
        reader, writer = await connect()
        writer.write(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await ended.wait()

    served(Limits(connections=8, write_seconds=0.2), reads_nothing)


@pytest.mark.parametrize("sent", [b"", HALF_HEADERS, HALF_BODY, b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_signal_ends_it_whatever_is_half_sent_or_unread(sent: bytes) -> None:
    async def work(connect: Connect) -> Any:
        reader, writer = await connect()
        writer.write(sent)
        if b"much" in sent:
            await reader.readexactly(1)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)
        assert await healthy(connect)
        return reader, writer

    served(PATIENT, work)


def test_what_was_begun_is_finished_at_a_signal() -> None:
    async def work(connect: Connect) -> Any:
        reader, writer = await connect()
        writer.write(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await healthy(connect)
        return asyncio.ensure_future(_kept(reader, writer))

    async def _kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        return await reader.read()

    assert served(PATIENT, work).result().endswith(b"finished")


def test_each_cause_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(connect: Connect) -> None:
        for _ in range(30):
            reader, writer = await connect()
            writer.write(b"\x00\x01\x02 garbage\r\n\r\n")
            await reader.read()

    logging.getLogger("uvicorn.error").filters.clear()
    served(PATIENT, work)
    assert capsys.readouterr().err.count("Invalid HTTP request received.") == 1


def test_a_cause_is_the_message_and_the_kind_of_error() -> None:
    once = OncePerCause()

    def record(message: str, error: Exception | None = None, *arguments: Any) -> logging.LogRecord:
        found = (type(error), error, None) if error else None
        return logging.LogRecord("a", logging.ERROR, "", 0, message, arguments, found)  # type: ignore[arg-type]

    given = [record("%s failed", None, 1), record("%s failed", None, 2), record("%s failed", ValueError()), record("x")]
    assert [once.filter(one) for one in given] == [True, False, True, True]


def test_descriptors_are_left_for_files() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        limits = limits_here()
        now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 4 <= limits.connections <= now - RESERVED
