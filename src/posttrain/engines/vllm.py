"""vLLM servers that the user started: they sample, this process learns, and vLLM is not imported here.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --port 8000
    posttrain run grpo model=MODEL engine=vllm engine.servers=a:8000,b:8000

Weights go there as a folder of safetensors (``/collective_rpc`` with ``reload_weights``), which all servers must see,
between ``/pause`` and ``/resume``; a label names the version, and every token of an answer has one.

Source: vLLM 0.33, ``vllm/entrypoints/serve/disagg`` (tokens in, tokens out) and ``serve/dev`` (weights), read and not
run. The routes for weights ask nobody's name, and ``--api-key`` does not guard them: a private network.

With ``engine.transfer=gloo`` they go in vLLM's four phases (`posttrain.engines._phases`): the same requests in the same
order, and a broadcast beside them:

    /init_weight_transfer_engine   {"init_info": {master_address, master_port, rank_offset, world_size}}, once a group
    /pause?mode=wait
    /start_weight_update           no body
    /update_weights                {"update_info": {names, dtype_names, shapes}}, for each piece, beside its broadcast
    /finish_weight_update          {"weight_version"}
    /resume

Differs: that broadcast is by gloo, on CPUs, and that of vLLM by NCCL. So its other end can only be the stand-in,
`posttrain serve --protocol vllm`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.engines import Engine, Sampling, Server
from posttrain.engines._addressed import Addresses, Chunk, Concurrency, LogProbs, Retries, Trainer, Transfer, check
from posttrain.engines._phases import Named, Phases, Routes, named_types
from posttrain.engines._protocol import Answer, Asked, Link, Protocol, spans_of, text_of

if TYPE_CHECKING:
    from posttrain.policies import Policy


class _VLLM(Protocol):
    program = "vLLM"
    versions = ("0.33",)
    hint = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out"
    generate = "/inference/v1/generate"

    async def version(self, link: Link) -> str:
        """``GET /version``."""
        return text_of(await link.get("/version"), "version")

    def request(self, asked: Asked) -> dict[str, Any]:
        """``token_ids`` and ``sampling_params``. With ``logprobs: 0`` that of the sampled token alone is returned."""
        sampling: dict[str, Any] = {
            "n": 1,
            "temperature": asked.sampling.temperature,
            "max_tokens": asked.max_tokens,
            "seed": asked.seed,
            "logprobs": 0,
            "ignore_eos": True,  # the ends are all in stop_token_ids
            "stop_token_ids": list(asked.end_token_ids),
        }
        if asked.sampling.stop:
            sampling["stop"] = list(asked.sampling.stop)
        return {"request_id": asked.name, "token_ids": list(asked.token_ids), "sampling_params": sampling}

    def answer(self, body: Any) -> Answer:
        """The only one of ``choices``."""
        (choice,) = body["choices"]
        return Answer(
            token_ids=[int(token) for token in choice["token_ids"]],
            logp=[float(token["logprob"]) for token in choice["logprobs"]["content"]],
            finish=str(choice["finish_reason"]),
            versions=spans_of(choice["weight_versions"]),
        )

    async def give(self, link: Link, folder: Path, label: str) -> None:
        """Pause when requests have ended (caches of prompts are dropped), reload, label, go on."""
        await link.post("/pause?mode=wait")
        await link.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        await link.post("/update_weight_version", {"new_version": label})
        await link.post("/resume")

    async def label(self, link: Link) -> str:
        """``GET /weight_info``."""
        return text_of(await link.get("/weight_info"), "weight_version")


def update_info(piece: Named) -> dict[str, Any]:
    """The body of a request for a piece."""
    names, types, shapes = named_types(piece)
    return {"update_info": {"names": names, "dtype_names": types, "shapes": shapes}}


class _FourPhases(Routes):
    async def pause(self, link: Link) -> str:
        await link.post("/pause?mode=wait")
        body = await link.get("/weight_info")
        return str(body.get("weight_version")) if isinstance(body, Mapping) else ""

    async def join(self, link: Link, address: str, port: int, rank: int, size: int) -> None:
        info = {"master_address": address, "master_port": port, "rank_offset": rank, "world_size": size}
        await link.post("/init_weight_transfer_engine", {"init_info": info})

    async def begin(self, link: Link) -> None:
        await link.post("/start_weight_update")

    async def piece(self, link: Link, piece: Named, label: str, *, last: bool) -> None:
        await link.post("/update_weights", update_info(piece))

    async def end(self, link: Link, label: str) -> None:
        await link.post("/finish_weight_update", {"weight_version": label})
        await link.post("/resume")


@frozen
class VLLM(Engine):
    """Samples on vLLM servers."""

    protocol: ClassVar[Protocol] = _VLLM()

    servers: Addresses = ()
    """``HOST:PORT`` of each, with commas between them. All must have loaded the policy's model."""
    logprobs: LogProbs = "raw"
    """What the servers return: log-probabilities before the temperature, or after it and all cuts: its
    ``--logprobs-mode``.
    """
    folder: str = ""
    """Folder to which weights are written, under the same path on this machine and on those of the servers; empty takes
    a temporary one of this machine."""
    transfer: Transfer = "folder"
    """How weights get there: as a folder, or by a broadcast, which only the stand-in takes."""
    trainer: Trainer = "127.0.0.1"
    """With a broadcast, the address at which the servers reach this process."""
    chunk_mb: Chunk = 256
    """With a broadcast, most MiB of one ``/update_weights``; a larger tensor is alone in one."""
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
        phases = Phases(_FourPhases(), policy, self.trainer, self.chunk_mb << 20, self.timeout_seconds)
        return serve(self, policy, seed, phases)
