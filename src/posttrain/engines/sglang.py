"""SGLang servers that the user started: they sample, this process learns, and SGLang is not imported here.

    python -m sglang.launch_server --model-path MODEL --port 30000
    posttrain run grpo model=MODEL engine=sglang engine.servers=a:30000

Weights go there as a folder of safetensors (``/update_weights_from_disk``), which all servers must see. Requests in
progress are put back, and their caches computed anew.

Source: SGLang 0.5.23, ``python/sglang/srt/entrypoints/http_server.py`` and ``managers/io_struct.py``, read and not run.
Seeds count with ``--enable-deterministic-inference`` only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.engines import Engine, Sampling, Server
from posttrain.engines._addressed import Addresses, Concurrency, LogProbs, Retries, check
from posttrain.engines._protocol import Answer, Asked, Link, Protocol, Unanswered, spans_of, text_of

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

        return serve(self, policy, seed)
