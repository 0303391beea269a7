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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import httpx2
from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat

from posttrain.component import frozen
from posttrain.engines import Engine, Sampling, Server, wait_for
from posttrain.engines._protocol import Link, Place, Protocol, Unanswered, together
from posttrain.engines.native import Native
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy

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


@frozen
class Served(Engine):
    """What such engines have in common."""

    protocol: ClassVar[Protocol]

    servers: Annotated[tuple[str, ...], BeforeValidator(_addresses), AfterValidator(_check_addresses)] = ()
    """``HOST:PORT`` of each, with commas between them. All must have loaded the policy's model."""
    logprobs: Literal["raw", "processed"] = "raw"
    """What the servers return: log-probabilities before the temperature, or after it and all cuts. In vLLM it is
    ``--logprobs-mode``."""
    folder: str = ""
    """Folder to which weights are written, under the same path on this machine and on those of the servers; empty takes
    a temporary one of this machine."""
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 256
    """Most requests at a time to one server."""
    timeout_seconds: PositiveFloat = 600.0
    """Longest time for one answer; more than the longest completion takes, and than loading weights."""
    retries: Annotated[int, Field(ge=0, le=100)] = 5
    """Further requests in a row that a server may leave without an answer before it is left out."""
    backoff_seconds: PositiveFloat = 1.0
    """Pause before the first of them; it doubles."""
    tolerance: PositiveFloat = 0.25
    """Largest mean difference, in nats a token, of log-probabilities from those computed here."""

    @property
    def samples_here(self) -> bool:
        """It does not."""
        return False

    def check(self, samplings: Mapping[str, Sampling]) -> None:
        """Raise `UserError` for settings that cannot be learned from, and for servers that cannot be used."""
        if not self.servers:
            raise UserError(
                f"engine={self.kind} needs servers, which you start: {self.protocol.hint}; then name them with "
                "engine.servers=HOST:PORT,HOST:PORT"
            )
        for path, sampling in samplings.items():
            self.check_sampling(sampling, path)
        wait_for(self._check_servers())

    def check_sampling(self, sampling: Sampling, path: str = "sampling") -> None:
        """Raise `UserError` where the servers' log-probabilities are not those of this package."""
        cuts = {"top_k": sampling.top_k, "min_p": sampling.min_p, "top_p": sampling.top_p % 1.0}
        if found := [name for name, value in cuts.items() if value]:
            raise UserError(
                f"{path}.{found[0]} is set, and engine={self.kind} samples without cuts only: a server's "
                "log-probabilities are before the temperature or after all cuts, and what is learned from is between "
                "them. Leave it out"
            )
        if self.logprobs == "raw" and sampling.temperature not in (0.0, 1.0):
            raise UserError(
                f"{path}.temperature={sampling.temperature:g} with engine.logprobs=raw: those log-probabilities are of "
                "temperature 1, and would be taken for those of the sampled distribution. Sample at temperature 1, or "
                "start the servers so that they return processed ones and set engine.logprobs=processed"
            )

    async def _check_servers(self) -> None:
        places = [Place(address, number) for number, address in enumerate(self.servers)]
        async with self.client() as client:
            await together([self._check_one(Link(place, client, self.protocol.program)) for place in places])

    async def _check_one(self, link: Link) -> None:
        """Check a server, which may be starting still."""
        for number in range(self.retries + 1):
            try:
                return await self.protocol.check(link)
            except Unanswered as error:
                why = str(error)
            if number < self.retries:
                await asyncio.sleep(self.pause(number))
        raise UserError(
            f"{link.named} does not answer: {why}. Is it running, and is the address correct? It is started with "
            f"{self.protocol.hint}"
        )

    def pause(self, number: int) -> float:
        """Seconds after a request without an answer, from 0."""
        return float(min(self.backoff_seconds * 2.0**number, LONGEST_PAUSE))

    def client(self) -> httpx2.AsyncClient:
        """Connections."""
        timeout = httpx2.Timeout(self.timeout_seconds, connect=min(self.timeout_seconds, 10.0), pool=None)
        most = httpx2.Limits(max_connections=self.concurrency * max(len(self.servers), 1))
        return httpx2.AsyncClient(timeout=timeout, limits=most, trust_env=False, verify=False)  # no TLS

    def serve(self, policy: "Policy", seed: int) -> Server:
        """The servers for the policy, this process for any other model."""
        local = Native().serve(policy, seed)
        if policy.role != "policy":
            return local
        from posttrain.engines._continuous import ContinuousServer
        from posttrain.engines._remote import RemoteServer

        if not isinstance(local, ContinuousServer):
            raise UserError(f"engine={self.kind}: the {policy.called} in the role 'policy' writes no text")
        return RemoteServer(self, policy, seed, local)
