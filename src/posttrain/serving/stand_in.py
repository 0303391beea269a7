"""A stand-in for the servers of other programs: this package's own server, which also speaks their protocols.

It answers the requests that `posttrain.engines.vllm` and `posttrain.engines.sglang` send, and no others: each has the
fields below and none besides, and weights come in the order that the program requires. What comes is recorded. A
completion is sampled from the key in its name, so that a run that learns through a stand-in is the run that samples
in its own process, token by token.

Routes and fields: vLLM 0.33, SGLang 0.5.23, as read.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, Strict, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from posttrain.component import frozen
from posttrain.engines import Sampling
from posttrain.engines._phases import named_weights
from posttrain.errors.foreign import parse_json, shown
from posttrain.errors.temporary import temporary_folder
from posttrain.serving.fields import Flag, Real, Refused, Text, Whole
from posttrain.serving.receiving import (
    Finish,
    FromDistributed,
    Init,
    InitGroup,
    Nothing,
    Receiver,
    Update,
    UpdateInfo,
)
from posttrain.serving.server import Service
from posttrain.types import Completion

if TYPE_CHECKING:
    from posttrain.engines._continuous import ContinuousServer

Program = Literal["vllm", "sglang"]
VERSIONS: dict[Program, str] = {"vllm": "0.33.0", "sglang": "0.5.23"}
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
FIRST = "default"
"""Label of the weights that a server starts with."""


@frozen
class VLLMSampling:
    """``sampling_params`` of vLLM."""

    n: Whole
    temperature: Real
    max_tokens: Whole
    seed: Seed
    logprobs: Whole
    ignore_eos: Flag
    stop_token_ids: tuple[Whole, ...]
    stop: tuple[Text, ...] = ()


@frozen
class VLLMGenerate:
    """``/inference/v1/generate``."""

    request_id: Text
    token_ids: tuple[Whole, ...]
    sampling_params: VLLMSampling


@frozen
class SGLangSampling:
    """``sampling_params`` of SGLang."""

    temperature: Real
    max_new_tokens: Whole
    sampling_seed: Seed
    ignore_eos: Flag
    stop_token_ids: tuple[Whole, ...]
    stop: tuple[Text, ...] = ()


@frozen
class SGLangGenerate:
    """``/generate``."""

    rid: Text
    input_ids: tuple[Whole, ...]
    sampling_params: SGLangSampling
    return_logprob: Flag


@frozen
class Reload:
    """``/collective_rpc`` of vLLM, of which it takes one method."""

    method: Literal["reload_weights"]
    kwargs: Mapping[Literal["weights_path"], Text]


@frozen
class Label:
    """``/update_weight_version`` of vLLM."""

    new_version: Text


@frozen
class FromDisk:
    """``/update_weights_from_disk`` of SGLang."""

    model_path: Text
    weight_version: Text
    flush_cache: Flag


@frozen
class Pause:
    """``/pause_generation`` of SGLang."""

    mode: Literal["abort", "retract", "in_place"] = "abort"


class StandIn(Service):
    """A server that speaks the protocol of another program besides its own."""

    def __init__(
        self,
        server: "ContinuousServer",
        name: str,
        program: Program,
        *,
        load: "Callable[[Path], ContinuousServer]",
        record: Path | None = None,
        **settings: Any,
    ) -> None:
        """`load` makes the server of a model's folder; requests are appended to `record` as lines of JSON."""
        super().__init__(server, name, **settings)
        self.program, self.version, self.label = program, VERSIONS[program], FIRST
        self.requests_seen: list[dict[str, Any]] = []
        """Method, path and body of each."""
        self._tokens, self._load, self._record = server, load, record
        self._paused = self._loaded = False
        self._receiver = Receiver()
        self._last: FromDistributed | None = None
        """The last piece of weights for SGLang."""

    def routes(self) -> list[tuple[str, Callable[[Request], Awaitable[Response]], str]]:
        """Those of the program, before its own."""
        own: dict[Program, list[tuple[str, Callable[[Request], Awaitable[Response]], str]]] = {
            "vllm": [
                ("/version", self._version, "GET"),
                ("/weight_info", self._weight_info, "GET"),
                ("/inference/v1/generate", self._generate_vllm, "POST"),
                ("/pause", self._pause_vllm, "POST"),
                ("/resume", self._go_on, "POST"),
                ("/collective_rpc", self._reload, "POST"),
                ("/update_weight_version", self._set_label, "POST"),
                ("/init_weight_transfer_engine", self._join, "POST"),
                ("/start_weight_update", self._start_update, "POST"),
                ("/update_weights", self._update, "POST"),
                ("/finish_weight_update", self._finish_update, "POST"),
            ],
            "sglang": [
                ("/server_info", self._version, "GET"),
                ("/model_info", self._weight_info, "GET"),
                ("/generate", self._generate_sglang, "POST"),
                ("/pause_generation", self._pause_sglang, "POST"),
                ("/continue_generation", self._go_on, "POST"),
                ("/update_weights_from_disk", self._from_disk, "POST"),
                ("/init_weights_update_group", self._join_group, "POST"),
                ("/begin_weight_update", self._begin_update, "POST"),
                ("/update_weights_from_distributed", self._from_distributed, "POST"),
                ("/end_weight_update", self._end_update, "POST"),
            ],
        }
        return [*own[self.program], *super().routes()]

    async def _version(self, request: Request) -> Response:
        await self._seen(request)
        return JSONResponse({"version": self.version})

    async def _weight_info(self, request: Request) -> Response:
        await self._seen(request)
        return JSONResponse({"weight_version": self.label})

    # Weights

    async def _pause_vllm(self, request: Request) -> Response:
        await self._seen(request)
        if request.query_params.get("mode", "abort") not in ("abort", "wait", "keep"):
            raise Refused(f"mode={shown(request.query_params['mode'], 40)}: it is abort, wait or keep")
        self._paused = True
        return JSONResponse({"status": "paused"})

    async def _pause_sglang(self, request: Request) -> Response:
        _checked(Pause, await self._seen(request))
        self._paused = True
        return JSONResponse({"status": "ok"})

    async def _go_on(self, request: Request) -> Response:
        await self._seen(request)
        if self._loaded:
            raise Refused("weights were loaded and have no label yet", status=409)
        if self._receiver.is_open:
            raise Refused("an update of the weights has not ended", status=409)
        self._paused = False
        return JSONResponse({"status": "resumed"})

    async def _reload(self, request: Request) -> Response:
        wanted = _checked(Reload, await self._seen(request))
        await self._take(Path(wanted.kwargs["weights_path"]))
        self._loaded = True
        return JSONResponse({"results": [None]})

    async def _set_label(self, request: Request) -> Response:
        self.label = _checked(Label, await self._seen(request)).new_version
        self._loaded = False
        return JSONResponse({"success": True, "new_version": self.label})

    async def _join(self, request: Request) -> Response:
        info = _checked(Init, await self._seen(request)).init_info
        await self._worker.call(lambda: self._receiver.join(info))
        return JSONResponse({"message": "Weight transfer initialized"})

    async def _start_update(self, request: Request) -> Response:
        if await self._seen(request) is not None:
            raise Refused("/start_weight_update has no body")
        self._receiver.start(self._paused)
        return JSONResponse({"message": "Weight update started"})

    async def _update(self, request: Request) -> Response:
        info, policy = _checked(Update, await self._seen(request)).update_info, self._tokens.policy
        await self._worker.call(lambda: self._receiver.take(info, named_weights(policy)))
        return JSONResponse({"message": "Weights updated"})

    async def _finish_update(self, request: Request) -> Response:
        await self._finish(_checked(Finish, await self._seen(request)).weight_version)
        return JSONResponse({"message": "Weight update finished"})

    async def _finish(self, label: str) -> None:
        """Serve the weights that have come from now on."""
        policy = self._tokens.policy

        def finish() -> "ContinuousServer":
            self._receiver.finish(named_weights(policy))
            with temporary_folder("weights") as folder:
                policy.save(folder)
                return self._load(folder)  # without what it kept of prompts

        self._tokens, self.label = await self._worker.call(finish), label

    async def _join_group(self, request: Request) -> Response:
        info = _checked(InitGroup, await self._seen(request))
        await self._worker.call(lambda: self._receiver.join(info))
        return JSONResponse({"success": True, "message": ""})

    async def _begin_update(self, request: Request) -> Response:
        _checked(Nothing, await self._seen(request))
        self._receiver.start(self._paused)
        self._last = None
        return JSONResponse({"success": True, "message": ""})

    async def _from_distributed(self, request: Request) -> Response:
        wanted, policy = _checked(FromDistributed, await self._seen(request)), self._tokens.policy
        if wanted.group_name != self._receiver.name:
            raise Refused(f"there is no group {shown(wanted.group_name, 60)}")
        info = UpdateInfo(names=wanted.names, dtype_names=wanted.dtypes, shapes=wanted.shapes)
        await self._worker.call(lambda: self._receiver.take(info, named_weights(policy)))
        self._last = wanted
        return JSONResponse({"success": True, "message": ""})

    async def _end_update(self, request: Request) -> Response:
        _checked(Nothing, await self._seen(request))
        last = self._last
        if last is not None and (not last.flush_cache or last.weight_version is None):
            raise Refused("the last request neither flushed the cache nor gave a label, or one of them", status=409)
        await self._finish(last.weight_version or "" if last is not None else "")
        return JSONResponse({"success": True, "message": ""})

    async def _from_disk(self, request: Request) -> Response:
        wanted = _checked(FromDisk, await self._seen(request))
        await self._take(Path(wanted.model_path))
        self.label = wanted.weight_version
        return JSONResponse({"success": True, "message": "", "num_paused_requests": 0})

    async def _take(self, folder: Path) -> None:
        """Serve the model in a folder from now on."""
        if not self._paused:
            raise Refused("weights are changed while requests are answered: pause first", status=409)
        self._tokens = await self._worker.call(lambda: self._load(folder))

    # Completions

    async def _generate_vllm(self, request: Request) -> Response:
        wanted = _checked(VLLMGenerate, await self._seen(request))
        own = wanted.sampling_params
        if own.n != 1 or own.logprobs != 0 or not own.ignore_eos:
            raise Refused("one completion a request, with the log-probability of its tokens, and ends of its own")
        key = _key_of(wanted.request_id, own.seed)
        done = await self._complete_key(wanted.token_ids, key, own, own.max_tokens)
        content = [{"token": f"token_id:{i}", "logprob": p, "top_logprobs": []} for i, p in _pairs(done)]
        choice = {
            "index": 0,
            "token_ids": done.token_ids.tolist(),
            "logprobs": {"content": content},
            "finish_reason": done.stop_reason,
            "weight_versions": [{"version": self.label, "start": 0, "end": len(content)}],
        }
        return JSONResponse({"request_id": wanted.request_id, "choices": [choice]})

    async def _generate_sglang(self, request: Request) -> Response:
        wanted = _checked(SGLangGenerate, await self._seen(request))
        own = wanted.sampling_params
        if not own.ignore_eos or not wanted.return_logprob:
            raise Refused("completions have log-probabilities, and ends of their own")
        done = await self._complete_key(
            wanted.input_ids, _key_of(wanted.rid, own.sampling_seed), own, own.max_new_tokens
        )
        about = {
            "finish_reason": {"type": done.stop_reason},
            "output_token_logprobs": [[p, i, None] for i, p in _pairs(done)],
            "weight_version": self.label,
        }
        return JSONResponse({"text": done.text, "output_ids": done.token_ids.tolist(), "meta_info": about})

    async def _complete_key(
        self, token_ids: tuple[int, ...], key: int, own: VLLMSampling | SGLangSampling, most: int
    ) -> Completion:
        if self._paused:
            raise Refused("it is paused", status=503)
        sampling = Sampling(
            temperature=own.temperature, max_tokens=most, stop=own.stop, stop_token_ids=own.stop_token_ids
        )
        reservation = self._reserve(1)
        try:
            prompt = np.array(token_ids, np.int64)
            (done,) = await self._engine.submit(self._tokens.complete(prompt, [key], sampling))
        finally:
            reservation.close()
        return done

    async def _seen(self, request: Request) -> Any:
        """The body of a request, which is recorded."""
        body: Any = None
        if request.method == "POST":
            async with self._access.body(request) as content:
                try:
                    body = parse_json(content.decode() or "null")
                except (ValueError, RecursionError) as error:
                    raise Refused(f"no JSON: {shown(error, 100)}") from None
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        entry = {"method": request.method, "path": path, "body": body}
        self.requests_seen.append(entry)
        if self._record is not None:
            with self._record.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        return body


def _checked(kind: Any, body: Any) -> Any:
    """A body as its class. Raises `Refused` for other fields."""
    try:
        return TypeAdapter(kind).validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Refused(f"{where}: {shown(first['msg'], 200)}") from None


def _key_of(name: str, seed: int) -> int:
    """The key in the name of a request, which its seed must be of."""
    try:
        key = int(name.partition("-")[0], 16)
    except ValueError:
        raise Refused("the name of the request is no key") from None
    if seed != key >> 1:
        raise Refused("the seed is not that of the key")
    return key


def _pairs(done: Completion) -> list[tuple[int, float]]:
    """Each token with its log-probability."""
    return list(zip(done.token_ids.tolist(), done.logp.tolist(), strict=True))
