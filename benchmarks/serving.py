"""Tokens a second of the server at 1, 4 and 16 clients, against its engine alone on the same requests.

    python -m benchmarks.serving [--rounds 3] [--json FILE]

The model has the shape of SmolLM2-135M and random weights, in float32. Engine and server take turns in one process;
the clients, each of which sends its next request when the one before is complete, are in another.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CLIENTS = (1, 4, 16)
REQUESTS = {1: 2, 4: 2, 16: 1}
"""Of each client."""
PROMPT, TOKENS = 64, 32
"""Tokens of a prompt and of a completion."""
WORDS = 49_152
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": WORDS,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}
"""As in the ``config.json`` of SmolLM2-135M."""


def make_model(folder: Path) -> Path:
    """A folder with random weights, and a tokenizer of bytes and made-up words."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from posttrain.policies._byte_tokenizer import byte_symbols

    names = [*byte_symbols(), *(f"\u0120w{i}" for i in range(WORDS - 257)), "<|end|>"]
    backend = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "config.json").write_text(json.dumps(SHAPE))
    generator = torch.Generator().manual_seed(0)
    width, inner, kv = 576, 1536, 192

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.02

    weights = {"model.embed_tokens.weight": random(WORDS, width), "model.norm.weight": torch.ones(width)}
    for i in range(30):
        at = f"model.layers.{i}."
        for name, shape in {
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (kv, width),
            "self_attn.v_proj": (kv, width),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
        }.items():
            weights[f"{at}{name}.weight"] = random(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = torch.ones(width)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def prompts(client: int, count: int) -> list[list[int]]:
    """Ids of a client's prompts; no two are the same."""
    return [
        [97 + (client * 7 + number * 13 + place * place) % 26 for place in range(PROMPT)] for number in range(count)
    ]


async def engine_alone(server: Any, clients: int) -> float:
    """Tokens a second without HTTP."""
    import numpy as np

    from posttrain.engines import Sampling

    async def client(number: int) -> int:
        written = 0
        for i, prompt in enumerate(prompts(number, REQUESTS[clients])):
            sampler = server.bind("client", number, i)
            (completion,) = await sampler.sample(np.array(prompt), 1, Sampling(max_tokens=TOKENS))
            written += len(completion.token_ids)
        return written

    began = time.perf_counter()
    written = await asyncio.gather(*(client(number) for number in range(clients)))
    return sum(written) / (time.perf_counter() - began)


CLIENT = """
import asyncio, json, sys, time
from benchmarks.serving import prompts, REQUESTS, TOKENS

HEAD = (
    "POST /v1/completions HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n"
    "Content-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"
)

async def ask(port, prompt, stream):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {"prompt": prompt, "max_tokens": TOKENS, "stream": stream}
    body = json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()
    writer.write((HEAD % len(body)).encode() + body)
    answer = await reader.read()
    writer.close()
    assert b" 200 OK" in answer[:40], answer[:300]
    return int(answer.rpartition(b'"completion_tokens": ')[2].partition(b",")[0])

async def client(port, number, count, stream):
    return sum([await ask(port, prompt, stream) for prompt in prompts(number, count)])

async def main(port, clients, stream):
    began = time.perf_counter()
    written = await asyncio.gather(*(client(port, i, REQUESTS[clients], stream) for i in range(clients)))
    print(sum(written) / (time.perf_counter() - began), flush=True)

for line in sys.stdin:
    asyncio.run(main(*json.loads(line)))
"""


class Clients:
    """A process that plays the clients."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, clients: int, stream: bool) -> float:
        """Tokens a second."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([self._port, clients, stream]) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


async def serving(policy: Any, work: Any) -> Any:
    """The result of work that blocks, called in a thread with the port of a server of the policy."""
    from posttrain.cli._listening import answer, listen
    from posttrain.engines.native import Native
    from posttrain.serving.server import Service

    socket = listen("127.0.0.1", 0)
    service = Service(Native(slots=64).serve_text(policy, 0), "model")
    answering = asyncio.ensure_future(answer(service.app(), socket))
    try:
        return await asyncio.to_thread(work, int(socket.getsockname()[1]))
    finally:
        os.kill(os.getpid(), signal.SIGINT)  # ends the server, as Ctrl-C does
        await answering


def measure(rounds: int) -> dict[str, Any]:
    """Medians over rounds, and shares of the engine's tokens a second within each round."""
    import torch

    from posttrain.models import Model
    from posttrain.policies.loading import load_policy

    with tempfile.TemporaryDirectory() as folder:
        policy = load_policy("policy", Model(source=str(make_model(Path(folder) / "model"))), {}, torch.device("cpu"))
    return dict(asyncio.run(serving(policy, lambda port: compared(policy, port, rounds))))


def compared(policy: Any, port: int, rounds: int) -> dict[str, Any]:
    """The figures of a policy that is served at a port."""
    import torch

    from posttrain.engines.native import Native

    engine, clients = Native(slots=64).serve(policy, 0), Clients(port)
    rows: dict[str, Any] = {}
    try:
        asyncio.run(engine_alone(engine, 1))
        clients(1, False)
        for count in CLIENTS:
            seen: dict[str, list[float]] = {"engine": [], "server": [], "stream": []}
            for _ in range(rounds):
                seen["engine"].append(asyncio.run(engine_alone(engine, count)))
                seen["server"].append(clients(count, False))
                seen["stream"].append(clients(count, True))
                print(count, {name: round(values[-1], 1) for name, values in seen.items()}, file=sys.stderr, flush=True)
            shares = {
                f"{name}_share": statistics.median(a / b for a, b in zip(seen[name], seen["engine"], strict=True))
                for name in ("server", "stream")
            }
            rows[str(count)] = {**{name: statistics.median(values) for name, values in seen.items()}, **shares}
    finally:
        clients.close()
    machine = {"processor": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"clients": rows, "prompt": PROMPT, "tokens": TOKENS, "rounds": rounds, "machine": machine}


def main() -> None:
    """Print a table, and write the figures to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = measure(given.rounds)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    print("| clients | engine alone, tokens/s | server | share | streamed | share |\n|---|---|---|---|---|---|")
    for count, row in found["clients"].items():
        print(
            f"| {count} | {row['engine']:.0f} | {row['server']:.0f} | {row['server_share']:.2f} "
            f"| {row['stream']:.0f} | {row['stream_share']:.2f} |"
        )


if __name__ == "__main__":
    main()
