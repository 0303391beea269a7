"""Bodies of responses in pieces, and the places that a request holds until its response ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from posttrain.serving.memory import Tidier
from posttrain.types import Completion

T = TypeVar("T")


class Counted(Protocol):
    """What counts the completions that wait, and the requests for them."""

    waiting: int
    requests: int
    tidier: Tidier


class Reservation:
    """Completions of a request, counted as waiting until they end or the request does."""

    def __init__(self, service: Counted, count: int) -> None:
        self._service = service
        self._left = count
        self.futures: list[asyncio.Future[list[Completion]]] = []
        service.waiting += count

    def ended(self, count: int) -> None:
        """Some of them are complete."""
        count = min(count, self._left)
        self._left -= count
        self._service.waiting -= count

    def close(self) -> None:
        """Cancel what is still being written."""
        for future in self.futures:
            future.cancel()
        self.ended(self._left)
        self._service.tidier.soon()

    def leave(self) -> None:
        """The response has ended."""
        self._service.requests -= 1


class Pieces(StreamingResponse):
    """A response in pieces; with it, or with its client, ends what was reserved for it."""

    def __init__(
        self, pieces: AsyncIterator[bytes], reservation: Reservation, media_type: str, *, length: int | None = None
    ) -> None:
        headers = {"Cache-Control": "no-cache"} if length is None else {"Content-Length": str(length)}
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._reservation = reservation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces."""
        try:
            await super().__call__(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self._reservation.close()
            self._reservation.leave()


async def each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """The pieces, one by one."""
    for piece in pieces:
        yield piece


async def unless_gone(request: Request, work: "asyncio.Future[T]") -> T:
    """The result of the work, which is cancelled when the client disconnects."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    work.add_done_callback(lambda done: done.cancelled() or done.exception())  # else it is logged where nobody waits
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        watch.cancel()
        work.cancel()


def event(value: dict[str, Any]) -> bytes:
    """An event of a stream."""
    return f"data: {json.dumps(value)}\n\n".encode()
