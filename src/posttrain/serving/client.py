"""A client for OpenAI-compatible endpoints, with retries.

    request --> recorded? --> one of `concurrency` places --> POST --> answer
                                        ^                      |
                                        +------- pause --------+   no connection, time-out, 408, 409, 425, 429, 5xx,
                                                                   an invalid or empty answer

After a refusal (429, 503) there are fewer places for a while (`posttrain.serving.places`), and what was waited is a
note of the run. With canary items the first requests are asked again now and then (`posttrain.serving.drift`).

After the last attempt the client requests the list of models. An endpoint that does not answer that either is down:
`AlarmStop` ends the run, no partly scored step is learned from, and the run can be resumed. Otherwise only this request
fails: `NoAnswer`, as for a request that is refused (400, 413, 422). A wrong key, address or model is a `UserError` at
once.

Every completion is a request of its own. Its seed is a function of the run's seed and the sampler's key.
"""

import asyncio
import os
import time
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
from posttrain.errors.foreign import parse_json
from posttrain.models import Endpoint
from posttrain.serving.drift import Drift
from posttrain.serving.likeliest import Likeliest, asked, likeliest_of, read, written
from posttrain.serving.places import Places
from posttrain.serving.spending import Spending, Usage, estimated
from posttrain.serving.wire import name_of
from posttrain.types import Message

MAY_PASS = frozenset({408, 409, 425, 429})
"""Client errors that are retried, in addition to all server errors."""
MISTAKES = frozenset({401, 403})
REFUSED = frozenset({429, 503})
"""Answers after which there are fewer places."""
SHOWN = 300
"""Characters of an endpoint's message that are quoted in errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A failed attempt."""

    reason: str
    may_pass: bool
    pause: float = 0.0
    """Seconds that the endpoint requests by ``Retry-After``."""
    refused: bool = False
    """Whether the endpoint had too many requests."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion, and what it cost."""

    text: str
    usage: Usage | None = None


class Answers(Protocol):
    """Recorded answers by role and request."""

    def find(self, role: str, request: Mapping[str, Any]) -> str | None:
        """The recorded answer to a request, or None."""
        ...

    def add(self, role: str, request: Mapping[str, Any], answer: str, usage: Usage) -> None:
        """Record an answer and its tokens. Raises `RunFailed` where it cannot be written."""
        ...

    def spent(self, role: str) -> Sequence[Usage]:
        """Tokens of the answers that were recorded before this process began."""
        ...


class Remote:
    """An endpoint in a role. Used from one event loop at a time; connections are closed when no request waits."""

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
        self.spending = Spending(role, settings.budget)
        """What the answers have cost."""
        self._answers: Answers | None = None
        self._key = _key(role, settings)
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._waiting = 0
        self._places = Places(settings.concurrency)
        self._drift = Drift(settings.canaries)
        self._model = settings.model
        self._refusals, self._waited, self._fewest = 0, 0.0, settings.concurrency

    @property
    def answers(self) -> Answers | None:
        """The record of answers; None records none. What it holds is counted as spent."""
        return self._answers

    @answers.setter
    def answers(self, answers: Answers | None) -> None:
        self._answers = answers
        self.spending = Spending(self.role, self.settings.budget)
        for usage in answers.spent(self.role) if answers else ():
            self.spending.add(usage)

    async def check(self) -> None:
        """Finds the model; waits for an endpoint that is starting. Raises `UserError` where the model is missing."""
        async with self._session() as client:
            offered = await self._offered(client)
        if offered is None and self._model is None:
            raise UserError(f"{self._place} does not list its models; name one with models.{self.role}.endpoint.model")
        if self._model is None:
            if offered is None or len(offered) != 1:
                raise UserError(
                    f"{self._place} offers {len(offered or ())} models ({', '.join((offered or [])[:8]) or 'none'}); "
                    f"name one with models.{self.role}.endpoint.model"
                )
            self._model = offered[0]
        elif offered is not None and self._model not in offered:
            raise UserError(f"{self._place} has no model '{self._model}'; {nearest(self._model, offered)}")

    async def write(
        self,
        prompt: str | Sequence[Message],
        sampling: Sampling,
        seed: int,
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """One completion; with a JSON schema, a value of it. Raises `NoAnswer`, or `AlarmStop` where the endpoint is
        down, its budget is spent, or it answers otherwise than at first.
        """
        request = self._request(prompt, sampling, seed)
        if schema is not None:
            form = {"name": "verdict", "schema": dict(schema), "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        answer, new = await self._answered(request)
        self._drift.keep(request, answer)
        if new and self._drift.due():
            await self._compare()
        return answer

    async def likeliest(self, prompt: str | Sequence[Message]) -> Likeliest:
        """The likeliest first tokens after a prompt. Raises `NoAnswer`, `AlarmStop` as `write`, and `UserError` for an
        endpoint that states no log-probabilities.
        """
        request = self._request(prompt, Sampling(max_tokens=1), 0)
        request |= asked("messages" in request, self.settings.top_logprobs)
        found = read((await self._answered(request))[0])
        if found is None:
            raise UserError(
                f"{self._place} answers without log-probabilities (logprobs, top_logprobs), which this judge reads; "
                f"name a model that is loaded here as models.{self.role}.source, or take the reward 'judge', which "
                "reads text"
            )
        return found

    async def _answered(self, request: Mapping[str, Any]) -> tuple[str, bool]:
        """The recorded answer to a request, or a new one, and whether it is new."""
        recorded = self.answers.find(self.role, request) if self.answers else None
        if recorded is not None:
            return recorded, False
        answer, usage = await self._asked(request)
        if self.answers:
            self.answers.add(self.role, request, answer, usage)
        return answer, True

    async def _asked(self, request: Mapping[str, Any]) -> tuple[str, Usage]:
        """The endpoint's answer to a request, and what it cost."""
        path = "/completions" if "prompt" in request else "/chat/completions"
        async with self._session() as client, self._places.one():
            reserved = await self.spending.reserve(request)
            try:
                async with asyncio.timeout(self.settings.verdict_seconds):
                    answer = await self._with_retries(client, path, request)
            except TimeoutError:
                raise NoAnswer(
                    f"{self._place} has no answer to this request within "
                    f"verdict_seconds={self.settings.verdict_seconds:g}"
                ) from None
            finally:
                self.spending.free(reserved)
            usage = answer.usage or estimated(request, answer.text)
            self.spending.add(usage)
        return answer.text, usage

    async def _compare(self) -> None:
        """Ask the canary items again. Raises `AlarmStop` where too many of them are answered otherwise."""

        async def again(request: Mapping[str, Any]) -> str | None:
            try:
                return (await self._asked(request))[0]
            except NoAnswer:
                return None

        found = await asyncio.gather(*(again(request) for request, _ in self._drift.items))
        share, settings = self._drift.share(found), self.settings.canaries
        if settings is not None and share > settings.most:
            raise AlarmStop(
                f"{self._place} answers {share:.0%} of {len(found)} canary items otherwise than at first, more than "
                f"endpoint.canaries.most={settings.most:g}: its model may have been exchanged. Compare answers.jsonl; "
                "resume with a larger share, or begin a new run"
            )

    def take_notes(self) -> list[str]:
        """What was waited for since the last call, where the endpoint refused requests."""
        refusals, waited, fewest = self._refusals, self._waited, self._fewest
        self._refusals, self._waited, self._fewest = 0, 0.0, int(self._places.limit)
        if not refusals:
            return []
        return [
            f"{self._place} refused {refusals:,} requests as too many; {waited:.1f} s of pauses followed, with at "
            f"least {fewest} requests at a time of {self.settings.concurrency}"
        ]

    def _request(self, prompt: str | Sequence[Message], sampling: Sampling, seed: int) -> dict[str, Any]:
        """The body of a request. Raises `UserError` for settings that the protocol does not have."""
        for name in ("top_k", "min_p", "stop_token_ids"):
            if getattr(sampling, name):
                raise UserError(
                    f"{name} is set, but {self._place} does not take it: the protocol has temperature, top_p, "
                    "max_tokens and stop only; leave it out"
                )
        body: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"messages": list(prompt)}
        body |= {"model": self._model, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        body |= {"top_p": sampling.top_p, "seed": seed, "n": 1}
        return body | ({"stop": list(sampling.stop)} if sampling.stop else {})

    async def _with_retries(self, client: httpx2.AsyncClient, path: str, request: Mapping[str, Any]) -> Answer:
        """The answer, after at most `retries` retries."""
        failed = Failed(reason="no attempt was made", may_pass=True)
        for number in range(self.settings.retries + 1):
            if number:
                began = time.monotonic()
                await asyncio.sleep(self._pause(name_of(self.role, request), number, failed.pause))
                self._waited += time.monotonic() - began if failed.refused else 0.0
            falls = self._places.falls
            answer = await self._try(client, path, request)
            if isinstance(answer, Answer):
                self._places.rise()
                return answer
            if answer.refused:
                self._places.fall(falls)
                self._refusals, self._fewest = self._refusals + 1, min(self._fewest, int(self._places.limit))
            failed = answer
            if not failed.may_pass:
                raise NoAnswer(f"{self._place} refuses this request: {failed.reason}")
        attempts = f"after {self.settings.retries + 1} attempts: {failed.reason}"
        if await self._is_up(client):
            raise NoAnswer(f"{self._place} is up, but has no answer to this request {attempts}")
        raise AlarmStop(
            f"{self._place} is down {attempts}. Its answers so far are recorded, and no partly scored step was learned "
            "from: resume the run when the endpoint is back"
        )

    async def _try(self, client: httpx2.AsyncClient, path: str, request: Mapping[str, Any]) -> Answer | Failed:
        """One attempt."""
        try:
            async with asyncio.timeout(self.settings.answer_seconds):
                response = await client.post(self.url + path, json=request)
        except TimeoutError:
            return Failed(
                reason=f"no whole answer within answer_seconds={self.settings.answer_seconds:g}", may_pass=True
            )
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return Failed(reason=self._clean(f"{type(error).__name__} {error}".strip()), may_pass=True)
        status = response.status_code
        if status == 200:
            answer = _answer_of(response, likeliest="logprobs" in request)
            shown = self._clean(response.text) or "nothing"
            return Failed(reason=f"not an answer of the protocol: {shown}", may_pass=True) if answer is None else answer
        self._check_mistakes(response)
        passing = status >= 500 or status in MAY_PASS
        reason = f"status {status}, {self._clean(response.text)}"
        return Failed(reason=reason, may_pass=passing, pause=_retry_after(response), refused=status in REFUSED)

    def _check_mistakes(self, response: httpx2.Response) -> None:
        """Raises `UserError` for errors that only the user can fix."""
        status, message = response.status_code, self._clean(response.text)
        if status in MISTAKES:
            given = f"the key in {self.settings.api_key_env}" if self._key else "a request without a key"
            raise UserError(
                f"{self._place} refuses {given} (status {status}, {message}); models.{self.role}.endpoint.api_key_env "
                "names the environment variable that holds it"
            )
        if 300 <= status < 400 or status in (404, 405):
            raise UserError(
                f"{self._place} does not have '{response.request.url.path}' or the model '{self._model}' (status "
                f"{status}, {message}); models.{self.role}.source is the address up to and including /v1"
            )

    async def _offered(self, client: httpx2.AsyncClient) -> list[str] | None:
        """Names of the models; None where the endpoint has no list. Raises `UserError` where it cannot be reached."""
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
            f"{self._place} cannot be reached after {self.settings.retries + 1} attempts: {failed}. Is it running, and "
            "is the address correct?"
        )

    async def _is_up(self, client: httpx2.AsyncClient) -> bool:
        """Whether the endpoint answers any request."""
        try:
            response = await client.get(f"{self.url}/models")
        except (httpx2.TransportError, httpx2.DecodingError):
            return False
        return response.status_code < 500 and response.status_code not in MAY_PASS

    def _pause(self, name: str, number: int, requested: float) -> float:
        """Seconds before an attempt: exponential backoff with jitter that is a function of the request."""
        settings = self.settings
        whole = min(settings.backoff_seconds * 2.0 ** (number - 1), settings.max_pause_seconds)
        share = uniform(np.array([key_of(name)], np.uint64), np.array([number], np.uint64))[0]
        return max(whole * (1.0 + float(share)) / 2.0, min(requested, settings.max_retry_after_seconds))

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Connections, shared by concurrent requests and closed by the last of them."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._client, self._waiting = loop, None, 0
            limit, self._places = self._places.limit, Places(self.settings.concurrency)
            self._places.limit = limit
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
        """An endpoint's message in one line, truncated, and without the key that it may repeat."""
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


def _answer_of(response: httpx2.Response, *, likeliest: bool) -> Answer | None:
    """The completion in an answer with its tokens; None where it has none, or an empty one. With `likeliest`, the
    likeliest tokens in its place.
    """
    try:
        body = parse_json(response.text)
        choice = body["choices"][0]
        if likeliest:
            return Answer(written(likeliest_of(choice)), Usage.read(body.get("usage")))
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return Answer(text, Usage.read(body.get("usage"))) if isinstance(text, str) and text.strip() else None


def _names_of(response: httpx2.Response) -> list[str] | None:
    """Names in a list of models; None where the body is not one."""
    try:
        names = [model["id"] for model in parse_json(response.text)["data"]]
    except (ValueError, LookupError, TypeError):
        return None
    return names if response.status_code == 200 and all(isinstance(name, str) for name in names) else None


def _retry_after(response: httpx2.Response) -> float:
    """Seconds of ``Retry-After``, which is a number or a date; 0 without it."""
    header = response.headers.get("retry-after", "")
    try:
        return max(float(header), 0.0) if header else 0.0
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
