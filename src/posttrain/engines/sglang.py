"""SGLang servers that the user started: they sample, this process learns, and SGLang is not imported here.

    python -m sglang.launch_server --model-path MODEL --port 30000
    posttrain run grpo model=MODEL engine=sglang engine.servers=a:30000

Weights go there as a folder of safetensors (``/update_weights_from_disk``), which all servers must see. Requests in
progress are put back, and their caches computed anew.

With ``engine.transfer=gloo`` they go by the requests that SGLang has for a trainer beside it, and a broadcast beside
them (`posttrain.engines._phases`):

    /init_weights_update_group         {master_address, master_port, rank_offset, world_size, group_name, backend}, once
    /pause_generation                  {mode: retract}
    /begin_weight_update               {}
    /update_weights_from_distributed   {names, dtypes, shapes, group_name, flush_cache}, for each piece, beside its
                                       broadcast; the last one has weight_version, and flushes the cache
    /end_weight_update                 {}
    /continue_generation               {}

Source: SGLang 0.5.23, ``python/sglang/srt/entrypoints/http_server.py`` and ``managers/io_struct.py``, read and not run.
Seeds count with ``--enable-deterministic-inference`` only.

Differs: that broadcast is by gloo, on CPUs, and that of SGLang by NCCL. So its other end can only be the stand-in,
`posttrain serve --protocol sglang`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.engines import Engine, Sampling, Server
from posttrain.engines._addressed import Addresses, Chunk, Concurrency, LogProbs, Retries, Trainer, Transfer, check
from posttrain.engines._phases import Named, Phases, Routes, named_types
from posttrain.engines._protocol import SHOWN, Answer, Asked, Link, Protocol, Unanswered, spans_of, text_of
from posttrain.errors.foreign import shown

if TYPE_CHECKING:
    from posttrain.policies import Policy


class _SGLang(Protocol):
    program = "SGLang"
    versions = ("0.5.23",)
    hint = "python -m sglang.launch_server --model-path MODEL"
    generate = "/generate"

    async def version(self, link: Link) -> str:
        """``GET /server_info``."""
        return text_of(await link.get("/server_info"), "version")

    def request(self, asked: Asked) -> dict[str, Any]:
        """``input_ids``, ``sampling_params`` and ``return_logprob``."""
        sampling: dict[str, Any] = {
            "temperature": asked.sampling.temperature,
            "max_new_tokens": asked.max_tokens,
            "sampling_seed": asked.seed,
            "ignore_eos": True,  # the ends are all in stop_token_ids
            "stop_token_ids": list(asked.end_token_ids),
        }
        if asked.sampling.stop:
            sampling["stop"] = list(asked.sampling.stop)
        return {
            "rid": asked.name,
            "input_ids": list(asked.token_ids),
            "sampling_params": sampling,
            "return_logprob": True,
        }

    def answer(self, body: Any) -> Answer:
        """Tokens with their log-probabilities are in ``meta_info``."""
        about = body["meta_info"]
        written = about["output_token_logprobs"]
        spans = about.get("weight_versions")
        return Answer(
            token_ids=[int(token[1]) for token in written],
            logp=[float(token[0]) for token in written],
            finish=str(about["finish_reason"]["type"]),
            versions=spans_of(spans) if spans else frozenset({str(about["weight_version"])}),
        )

    async def give(self, link: Link, folder: Path, label: str) -> None:
        """Pause, load, go on."""
        await link.post("/pause_generation", {"mode": "retract"})
        body = {"model_path": str(folder), "weight_version": label, "flush_cache": True}
        done = await link.post("/update_weights_from_disk", body)
        if not done.get("success"):
            raise Unanswered(f"the weights were not loaded: {done.get('message')}")
        await link.post("/continue_generation", {})

    async def label(self, link: Link) -> str:
        """``GET /model_info``."""
        return text_of(await link.get("/model_info"), "weight_version")


GROUP = "posttrain"
"""The group's name in requests."""


async def _done(link: Link, path: str, body: Mapping[str, Any]) -> None:
    """Post, and see that it was done."""
    found = await link.post(path, body)
    if not isinstance(found, Mapping) or not found.get("success"):
        why = found.get("message") if isinstance(found, Mapping) else found
        raise Unanswered(f"{path} was not done: {shown(str(why), SHOWN)}")


class _Session(Routes):
    async def pause(self, link: Link) -> str:
        await link.post("/pause_generation", {"mode": "retract"})
        body = await link.get("/model_info")
        return str(body.get("weight_version")) if isinstance(body, Mapping) else ""

    async def join(self, link: Link, address: str, port: int, rank: int, size: int) -> None:
        place = {"master_address": address, "master_port": port, "rank_offset": rank, "world_size": size}
        await _done(link, "/init_weights_update_group", {**place, "group_name": GROUP, "backend": "gloo"})

    async def begin(self, link: Link) -> None:
        await _done(link, "/begin_weight_update", {})

    async def piece(self, link: Link, piece: Named, label: str, *, last: bool) -> None:
        names, types, shapes = named_types(piece)
        body = {"names": names, "dtypes": types, "shapes": shapes, "group_name": GROUP, "flush_cache": last}
        await _done(link, "/update_weights_from_distributed", {**body, "weight_version": label} if last else body)

    async def end(self, link: Link, label: str) -> None:
        await _done(link, "/end_weight_update", {})
        await link.post("/continue_generation", {})


@frozen
class SGLang(Engine):
    """Samples on SGLang servers."""

    protocol: ClassVar[Protocol] = _SGLang()

    servers: Addresses = ()
    """``HOST:PORT`` of each, with commas between them. All must have loaded the policy's model."""
    logprobs: LogProbs = "raw"
    """What the servers return: log-probabilities before the temperature, or after it and all cuts."""
    folder: str = ""
    """Folder to which weights are written, under the same path on this machine and on those of the servers; empty takes
    a temporary one of this machine."""
    transfer: Transfer = "folder"
    """How weights get there: as a folder, or by a broadcast, which only the stand-in takes."""
    trainer: Trainer = "127.0.0.1"
    """With a broadcast, the address at which the servers reach this process."""
    chunk_mb: Chunk = 256
    """With a broadcast, most MiB of one ``/update_weights_from_distributed``; a larger tensor is alone in one."""
    concurrency: Concurrency = 256
    """Most requests at a time to one server."""
    timeout_seconds: PositiveFloat = 600.0
    """Longest time for one answer; more than the longest completion takes, and than loading weights."""
    retries: Retries = 5
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
        check(self, samplings)

    def serve(self, policy: "Policy", seed: int) -> Server:
        """The servers for the policy, this process for any other model."""
        from posttrain.engines._remote import serve

        if self.transfer == "folder":
            return serve(self, policy, seed)
        phases = Phases(_Session(), policy, self.trainer, self.chunk_mb << 20, self.timeout_seconds)
        return serve(self, policy, seed, phases)
