"""Access control of the server: who may send requests, and how large; checked before anything is parsed.

A page in a browser can send requests to a server on the same machine and, where the page's own name is made to lead
there (DNS rebinding), read the answers. Browsers name the origin of a request, programs do not: a request with an
origin is refused, and so is one for a name that is not the server's own.
"""

import hmac
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from starlette.requests import Request

from posttrain.serving.fields import Refused

OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
SMALLEST_LIMIT = 4 * 2**20
"""Bytes of a body that are accepted for every model."""
BYTES_PER_TOKEN = 32
"""More are accepted where the context is long: this many bytes for each of its tokens."""
BODIES = 64 * 2**20
"""Bytes of all bodies that are held at a time."""


class Access:
    """Checks on a request before it is parsed."""

    def __init__(self, *, key: str = "", hosts: Collection[str] = (), context: int = 0) -> None:
        """`hosts` are the server's allowed names; none allows all. `context` is the model's."""
        self._keys = _bytes_of(key) if key else ()
        self._hosts = frozenset(hosts)
        self.largest_body = max(SMALLEST_LIMIT, BYTES_PER_TOKEN * context)
        self._most_held = max(BODIES, 2 * self.largest_body)
        self._held = 0

    def check_sender(self, request: Request) -> None:
        """Raises `Refused` (403) for a request that a web page makes, or that is for another host."""
        host = _without_port(request.headers.get("host", "")).lower()
        if self._hosts and host not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            raise Refused(f"this server is {names}, not '{host:.80}': use one of these names", status=403)
        site = request.headers.get("sec-fetch-site", "none")
        if "origin" in request.headers or site not in ("none", "same-origin"):
            raise Refused("this server answers programs, not web pages: it takes no request with an origin", status=403)

    def check_key(self, request: Request) -> None:
        """Raises `Refused` (401) for a request without the key."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
        if self._keys and not any(hmac.compare_digest(token, key) for key in self._keys):
            raise Refused("this server requires its API key, as a bearer token", status=401, code="invalid_api_key")

    def check_type(self, request: Request) -> None:
        """Raises `Refused` (415) for a body whose type is not JSON, which web pages may send without permission."""
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != "application/json":
            raise Refused(f"the content type must be application/json, got '{given:.80}'", status=415)

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The body, counted among those that are held. Raises `Refused` where it, or all of them, are too large."""
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > 18 or int(announced) > self.largest_body):
            raise self._too_large()
        body = bytearray()
        held = 0
        try:
            async for piece in request.stream():
                if len(body) + len(piece) > self.largest_body:
                    raise self._too_large()
                if self._held + len(piece) > self._most_held:
                    raise Refused("too many large requests are being read; retry later", status=429)
                body += piece
                held += len(piece)
                self._held += len(piece)
            whole = bytes(body)
            body.clear()
            yield whole
        finally:
            self._held -= held

    def _too_large(self) -> Refused:
        return Refused(f"the body is larger than {self.largest_body} bytes; send fewer prompts at a time", status=413)


def _bytes_of(key: str) -> tuple[bytes, ...]:
    """A key as clients send it: in UTF-8, or in the encoding of headers where that can hold it."""
    try:
        return key.encode("utf-8", "surrogateescape"), key.encode("latin-1")
    except UnicodeEncodeError:
        return (key.encode("utf-8", "surrogateescape"),)


def _without_port(host: str) -> str:
    """The name of a ``Host`` header."""
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdecimal() else host
