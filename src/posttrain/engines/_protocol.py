"""What a protocol of a server of tokens is: requests, answers, and how weights get there.

A file for each program (`posttrain.engines.vllm`, `posttrain.engines.sglang`), with the versions whose routes it has
been written for. Routes and fields change within months, so that a server of another version is refused.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx2

from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json, shown

SHOWN = 300
"""Characters of a server's message that are quoted in errors."""
MAY_PASS = frozenset({408, 409, 425, 429})
"""Client errors that are tried again, in addition to all server errors."""


class Unanswered(Exception):
    """A request that got no answer, for a reason that may pass."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One completion that is requested."""

    key: int
    """Names the completion; what it is sampled from is a function of it."""
    sent: int
    """Times that it was requested before."""
    token_ids: Sequence[int]
    end_token_ids: Sequence[int]
    """All ids that end the completion."""
    max_tokens: int
    sampling: Sampling

    @property
    def name(self) -> str:
        """Another one each time, so that a server that still has the one before takes it."""
        return f"{self.key:016x}-{self.sent}"

    @property
    def seed(self) -> int:
        """The key, without its lowest bit: seeds have a sign."""
        return self.key >> 1


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server wrote. T tokens."""

    token_ids: Sequence[int]
    """[T]"""
    logp: Sequence[float]
    """[T]"""
    finish: str
    """``stop``, ``length``, or ``abort``, which is no completion."""
    versions: frozenset[str]
    """Of the weights that wrote the tokens."""


@dataclass(eq=False)
class Place:
    """One server of a run."""

    address: str
    number: int
    load: int = 0
    """Completions that are requested of it and not there yet."""
    failures: int = 0
    """Requests in a row without an answer."""
    gone: str = ""
    """Why nothing is requested of it any more; empty while it is used."""
    compared: str = ""
    """The weights with which an answer of it was last compared."""


@dataclass(eq=False)
class Link:
    """Connections to one server."""

    place: Place
    client: httpx2.AsyncClient
    program: str

    async def get(self, path: str) -> Any:
        """The JSON of a ``GET``. Raises `Unanswered`, or `UserError` where the server refuses it."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of a ``POST``, without a body where there is none. Raises as `get`."""
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        url = f"http://{self.place.address}{path}"
        try:
            if method == "GET":
                response = await self.client.get(url)
            elif body is None:
                response = await self.client.post(url, headers={"Content-Type": "application/json"})
            else:
                response = await self.client.post(url, json=body)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise Unanswered(shown(f"{type(error).__name__} {error}".strip(), SHOWN)) from None
        status, text = response.status_code, shown(response.text, SHOWN)
        if status >= 500 or status in MAY_PASS:
            raise Unanswered(f"status {status}: {text}")
        if status != 200:
            raise UserError(f"{self.named} refuses {method} {path} (status {status}): {text}")
        try:
            return parse_json(response.text or "null")
        except (ValueError, RecursionError):
            raise Unanswered(f"{path} is no JSON: {text}") from None

    @property
    def named(self) -> str:
        """The server, for messages."""
        return f"the {self.program} server {self.place.address}"


class Protocol:
    """How one program is spoken to."""

    program: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    """The first numbers of the versions that have been read: ``0.33`` for all of 0.33."""
    hint: ClassVar[str]
    """How such a server is started."""
    generate: ClassVar[str]
    """The route of a completion."""

    async def version(self, link: Link) -> str:
        """The version of the program."""
        raise NotImplementedError

    def request(self, asked: Asked) -> dict[str, Any]:
        """The body of a request for one completion."""
        raise NotImplementedError

    def answer(self, body: Any) -> Answer:
        """What a body is. Raises `LookupError`, `TypeError` or `ValueError` for anything else."""
        raise NotImplementedError

    async def give(self, link: Link, folder: Path, label: str) -> None:
        """Make a server have the weights in a folder, under a label."""
        raise NotImplementedError

    async def label(self, link: Link) -> str:
        """The label of the weights that a server has."""
        raise NotImplementedError

    async def check(self, link: Link) -> None:
        """Raise `UserError` for a version that the protocol was not written for."""
        found = await self.version(link)
        if not any(found == known or found.startswith(f"{known}.") for known in self.versions):
            raise UserError(
                f"{link.named} is version {shown(found, 60)}; requests are written for {' and '.join(self.versions)}, "
                "and routes change between versions. Start one of these, or take the engine 'native'"
            )


def text_of(body: Any, *names: str) -> str:
    """A text in nested objects. Raises `UserError` where there is none."""
    for name in names:
        body = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(body, str):
        raise UserError(f"no '{'.'.join(names)}' in what the server answered; is it another program?")
    return body


def spans_of(spans: Any) -> frozenset[str]:
    """The versions in a list of spans, ``{version, start, end}`` or ``[version, start, end]``."""
    return frozenset(str(span["version"] if isinstance(span, Mapping) else span[0]) for span in spans)


async def together(works: Sequence[Any]) -> list[Any]:
    """Results of all; where one fails the others are cancelled, and have ended when its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
