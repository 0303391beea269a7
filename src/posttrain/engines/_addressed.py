"""Engines whose servers the user started: requests over HTTP, weights as a folder that the servers load.

The role ``policy`` samples there; log-probabilities of given text, and all other models, are computed in this process.
A request goes to the server with the fewest completions to write. A server that does not answer is left out, and what
was requested of it is requested of another one, with the same keys; with the next weights it may come back.

Log-probabilities. Ours are those at the sampling temperature before any cut. A server's are before the temperature
(``raw``) or after all cuts (``processed``). They are the same at temperature 1, or processed, and without cuts;
everything else is refused before anything is sampled. After each change of weights the first answer of every server is
compared with what this process computes for the same tokens.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from typing import Protocol as Shape

import httpx2
from pydantic import AfterValidator, BeforeValidator, Field

from posttrain.engines import Sampling, wait_for
from posttrain.engines._protocol import Link, Place, Protocol, Unanswered, together
from posttrain.errors import UserError

LONGEST_PAUSE = 60.0
"""Seconds between two requests to a server that does not answer."""


def _addresses(given: Any) -> Any:
    """A text is split at its commas."""
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given


def _check_addresses(addresses: tuple[str, ...]) -> tuple[str, ...]:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or "/" in address:
            raise ValueError(f"'{address}' is no HOST:PORT; write servers=a:8000,b:8000")
    if len(set(addresses)) < len(addresses):
        raise ValueError("a server is named twice")
    return addresses


Addresses = Annotated[tuple[str, ...], BeforeValidator(_addresses), AfterValidator(_check_addresses)]
"""``HOST:PORT`` of servers, with commas between them."""
LogProbs = Literal["raw", "processed"]
Concurrency = Annotated[int, Field(ge=1, le=4096)]
Retries = Annotated[int, Field(ge=0, le=100)]
Transfer = Literal["folder", "gloo"]
Trainer = Annotated[str, Field(min_length=1)]
Chunk = Annotated[int, Field(ge=1, le=1 << 20)]


class Settings(Shape):
    """What the engines of servers have in common."""

    @property
    def kind(self) -> str: ...
    @property
    def protocol(self) -> Protocol: ...
    @property
    def servers(self) -> tuple[str, ...]: ...
    @property
    def logprobs(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def retries(self) -> int: ...
    @property
    def backoff_seconds(self) -> float: ...
    @property
    def tolerance(self) -> float: ...


def check(engine: Settings, samplings: Mapping[str, Sampling]) -> None:
    """Raise `UserError` for settings that cannot be learned from, and for servers that cannot be used."""
    if not engine.servers:
        raise UserError(
            f"engine={engine.kind} needs servers, which you start: {engine.protocol.hint}; then name them with "
            "engine.servers=HOST:PORT,HOST:PORT"
        )
    for path, sampling in samplings.items():
        check_sampling(engine, sampling, path)
    wait_for(_check_servers(engine))


def check_sampling(engine: Settings, sampling: Sampling, path: str = "sampling") -> None:
    """Raise `UserError` where the servers' log-probabilities are not those of this package."""
    cuts = {"top_k": sampling.top_k, "min_p": sampling.min_p, "top_p": sampling.top_p % 1.0}
    if found := [name for name, value in cuts.items() if value]:
        raise UserError(
            f"{path}.{found[0]} is set, and engine={engine.kind} samples without cuts only: a server's "
            "log-probabilities are before the temperature or after all cuts, and what is learned from is between "
            "them. Leave it out"
        )
    if engine.logprobs == "raw" and sampling.temperature not in (0.0, 1.0):
        raise UserError(
            f"{path}.temperature={sampling.temperature:g} with engine.logprobs=raw: those log-probabilities are of "
            "temperature 1, and would be taken for those of the sampled distribution. Sample at temperature 1, or "
            "start the servers so that they return processed ones and set engine.logprobs=processed"
        )


def pause(engine: Settings, number: int) -> float:
    """Seconds after a request without an answer, from 0."""
    return float(min(engine.backoff_seconds * 2.0**number, LONGEST_PAUSE))


def connect(engine: Settings) -> httpx2.AsyncClient:
    """Connections to the servers."""
    timeout = httpx2.Timeout(engine.timeout_seconds, connect=min(engine.timeout_seconds, 10.0), pool=None)
    most = httpx2.Limits(max_connections=engine.concurrency * max(len(engine.servers), 1))
    return httpx2.AsyncClient(timeout=timeout, limits=most, trust_env=False, verify=False)  # no TLS


async def _check_servers(engine: Settings) -> None:
    places = [Place(address, number) for number, address in enumerate(engine.servers)]
    async with connect(engine) as opened:
        links = [Link(place, opened, engine.protocol.program) for place in places]
        await together([_check_one(engine, link) for link in links])


async def _check_one(engine: Settings, link: Link) -> None:
    """Check a server, which may be starting still."""
    for number in range(engine.retries + 1):
        try:
            return await engine.protocol.check(link)
        except Unanswered as error:
            why = str(error)
        if number < engine.retries:
            await asyncio.sleep(pause(engine, number))
    raise UserError(
        f"{link.named} does not answer: {why}. Is it running, and is the address correct? It is started with "
        f"{engine.protocol.hint}"
    )
