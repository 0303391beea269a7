"""A client for OpenAI-compatible endpoints, with retries.

    ask --> answered before? --> a place among `concurrency` --> POST --> answer
                                        ^                          |
                                        +---- pause, then again ---+   no connection, time-out, 408, 409, 425, 429,
                                                                       5xx, an answer that is none

What remains after the last try is told apart by asking for the list of models. An endpoint that does not answer that
either is down: `AlarmStop` ends the run, nothing half judged is learned from, and a resumed run goes on. One that does
has trouble with this request only: `NoAnswer`, as for a request that it refuses (400, 413, 422). A wrong key, address
or model is a `UserError` at once.

Every completion is a request of its own, with a seed that is a function of the run's seed and of what it is for.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import httpx2
import numpy as np

from posttrain.component import nearest
from posttrain.engines import Sampling
from posttrain.engines._random import key_of, uniform
from posttrain.errors import AlarmStop, NoAnswer, UserError
from posttrain.models import Endpoint
from posttrain.serving.wire import name_of
from posttrain.types import Message

MAY_PASS = frozenset({408, 409, 425, 429})
"""Client errors that another try may cure, beside all server errors."""
MISTAKES = frozenset({401, 403})
SHOWN = 300
"""Characters of an endpoint's own words that are repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One try that came to nothing."""

    what: str
    may_pass: bool
    pause: float = 0.0
    """Seconds that the endpoint asks to be left alone."""


class Answers(Protocol):
    """What was answered before, by role and request."""

    def find(self, role: str, request: Mapping[str, Any]) -> str | None:
        """The answer to a request; None for one that was not answered yet."""
        ...

    def add(self, role: str, request: Mapping[str, Any], answer: str) -> None:
        """Keep an answer. Raises `RunFailed` where that cannot be done."""
        ...


class Remote:
    """An endpoint in a role. Used from one event loop at a time; connections live as long as somebody waits."""

    def __init__(
        self,
        role: str,
        url: str,
        settings: Endpoint,
        *,
        seed: int = 0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises `UserError` where the environment lacks the key."""
        self.role, self.url, self.settings, self.seed = role, url.rstrip("/"), settings, seed
        self.answers: Answers | None = None
        """Where answers are kept; None keeps none."""
        self._key = _key(role, settings)
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._waiting = 0
        self._places = asyncio.Semaphore(settings.concurrency)
        self._model = settings.model

    async def check(self) -> None:
        """Find the model. Raises `UserError` where it is not to be had; waits for an endpoint that is starting."""
        async with self._session() as client:
            offered = await self._offered(client)
        if offered is None and self._model is None:
            raise UserError(
                f"{self._place} does not say which models it has; name one with models.{self.role}.endpoint.model"
            )
        if self._model is None:
            if offered is None or len(offered) != 1:
                raise UserError(
                    f"{self._place} offers {len(offered or ())} models ({', '.join((offered or [])[:8]) or 'none'}); "
                    f"name one with models.{self.role}.endpoint.model"
                )
            self._model = offered[0]
        elif offered is not None and self._model not in offered:
            raise UserError(f"{self._place} has no model '{self._model}'; {nearest(self._model, offered)}")

    async def write(self, prompt: str | Sequence[Message], sampling: Sampling, seed: int) -> str:
        """One completion. Raises `NoAnswer`, or `AlarmStop` where the endpoint is down."""
        request = self._request(prompt, sampling, seed)
        known = self.answers.find(self.role, request) if self.answers else None
        if known is not None:
            return known
        path = "/completions" if isinstance(prompt, str) else "/chat/completions"
        async with self._session() as client, self._places:
            answer = await self._persist(client, path, request)
        if self.answers:
            self.answers.add(self.role, request, answer)
        return answer

    def _request(self, prompt: str | Sequence[Message], sampling: Sampling, seed: int) -> dict[str, Any]:
        """What is sent. Raises `UserError` for settings that the protocol does not have."""
        for name in ("top_k", "min_p", "stop_token_ids"):
            if getattr(sampling, name):
                raise UserError(
                    f"{name} is set, but {self._place} cannot be asked for it: the protocol has temperature, top_p, "
                    "max_tokens and stop only; leave it out"
                )
        asked: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"messages": list(prompt)}
        asked |= {"model": self._model, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        asked |= {"top_p": sampling.top_p, "seed": seed, "n": 1}
        return asked | ({"stop": list(sampling.stop)} if sampling.stop else {})

    async def _persist(self, client: httpx2.AsyncClient, path: str, request: Mapping[str, Any]) -> str:
        """The answer, after as many tries as it takes and is allowed."""
        failed = Failed(what="nothing was tried", may_pass=True)
        for number in range(self.settings.retries + 1):
            if number:
                await asyncio.sleep(self._pause(name_of(self.role, request), number, failed.pause))
            answer = await self._try(client, path, request)
            if isinstance(answer, str):
                return answer
            failed = answer
            if not failed.may_pass:
                raise NoAnswer(f"{self._place} refuses this request: {failed.what}")
        tries = f"after {self.settings.retries + 1} tries: {failed.what}"
        if await self._is_up(client):
            raise NoAnswer(f"{self._place} is up, but has no answer to this request {tries}")
        raise AlarmStop(
            f"{self._place} is down {tries}. What it had answered is in the record and nothing half judged was learned "
            "from: resume the run when the endpoint is back"
        )

    async def _try(self, client: httpx2.AsyncClient, path: str, request: Mapping[str, Any]) -> str | Failed:
        """Ask once."""
        try:
            response = await client.post(self.url + path, json=request)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return Failed(what=self._clean(f"{type(error).__name__} {error}".strip()), may_pass=True)
        status = response.status_code
        if status == 200:
            text = _text_of(response)
            said = self._clean(response.text) or "nothing"
            return Failed(what=f"not an answer of the protocol: {said}", may_pass=True) if text is None else text
        self._check_mistakes(response)
        passing = status >= 500 or status in MAY_PASS
        what = f"status {status}, {self._clean(response.text)}"
        return Failed(what=what, may_pass=passing, pause=_retry_after(response))

    def _check_mistakes(self, response: httpx2.Response) -> None:
        """Raise `UserError` for what only the user can mend."""
        status, said = response.status_code, self._clean(response.text)
        if status in MISTAKES:
            given = f"the key in {self.settings.api_key_env}" if self._key else "a request without a key"
            raise UserError(
                f"{self._place} refuses {given} (status {status}, {said}); models.{self.role}.endpoint.api_key_env "
                "names the environment variable that holds it"
            )
        if 300 <= status < 400 or status in (404, 405):
            raise UserError(
                f"{self._place} does not know '{response.request.url.path}' or the model '{self._model}' (status "
                f"{status}, {said}); models.{self.role}.source is the address up to and including /v1"
            )

    async def _offered(self, client: httpx2.AsyncClient) -> list[str] | None:
        """Names of the models; None where the endpoint does not tell. Raises `UserError` where nobody answers."""
        failed = ""
        for number in range(self.settings.retries + 1):
            if number:
                await asyncio.sleep(self._pause("check", number, 0.0))
            try:
                response = await client.get(f"{self.url}/models")
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                failed = self._clean(f"{type(error).__name__} {error}".strip())
                continue
            if response.status_code in MISTAKES:
                self._check_mistakes(response)
            if response.status_code < 500 and response.status_code not in MAY_PASS:
                return _names_of(response)
            failed = f"status {response.status_code}, {self._clean(response.text)}"
        raise UserError(
            f"{self._place} cannot be reached after {self.settings.retries + 1} tries: {failed}. Is it running, and is "
            "the address right?"
        )

    async def _is_up(self, client: httpx2.AsyncClient) -> bool:
        """Whether it answers at all."""
        try:
            response = await client.get(f"{self.url}/models")
        except (httpx2.TransportError, httpx2.DecodingError):
            return False
        return response.status_code < 500 and response.status_code not in MAY_PASS

    def _pause(self, name: str, number: int, asked: float) -> float:
        """Seconds before a try: a share of the exponential pause that differs by request, but not by run."""
        settings = self.settings
        whole = min(settings.backoff_seconds * 2.0 ** (number - 1), settings.max_pause_seconds)
        share = uniform(np.array([key_of(name)], np.uint64), np.array([number], np.uint64))[0]
        return min(max(whole * (1.0 + float(share)) / 2.0, asked), settings.max_pause_seconds)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Connections, shared by all that wait at the time, and closed by the last of them."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._client, self._waiting = loop, None, 0
            self._places = asyncio.Semaphore(self.settings.concurrency)
        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            timeout = httpx2.Timeout(self.settings.timeout_seconds, pool=None)
            self._client = httpx2.AsyncClient(headers=headers, timeout=timeout, transport=self._transport)
        client = self._client
        self._waiting += 1
        try:
            yield client
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._client = None
                await client.aclose()

    @property
    def _place(self) -> str:
        return f"the endpoint {self.url} of role '{self.role}'"

    def _clean(self, text: str) -> str:
        """An endpoint's words in one line, cut short, and without the key that they may repeat."""
        text = text.replace(self._key, "[key]") if self._key else text
        text = " ".join(text.split())
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _key(role: str, settings: Endpoint) -> str:
    """The key, from the environment."""
    if settings.api_key_env is None:
        return ""
    key = os.environ.get(settings.api_key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        state = "holds no usable key" if key else "is not set"
        raise UserError(
            f"models.{role}.endpoint.api_key_env names the environment variable {settings.api_key_env}, which {state}; "
            "set it, or leave api_key_env out for an endpoint without a key"
        )
    return key


def _text_of(response: httpx2.Response) -> str | None:
    """The completion in an answer; None where there is none."""
    try:
        choice = response.json()["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    except (ValueError, LookupError, TypeError):
        return None
    return text if isinstance(text, str) else None


def _names_of(response: httpx2.Response) -> list[str] | None:
    """Names in a list of models; None where it is none."""
    try:
        names = [model["id"] for model in response.json()["data"]]
    except (ValueError, LookupError, TypeError):
        return None
    return names if response.status_code == 200 and all(isinstance(name, str) for name in names) else None


def _retry_after(response: httpx2.Response) -> float:
    """Seconds that the endpoint asks for, as a number or a date; 0 where it does not."""
    said = response.headers.get("retry-after", "")
    try:
        return max(float(said), 0.0) if said else 0.0
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(said)
    except (ValueError, TypeError):
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
