"""Scripted models with a real tokenizer and chat template, as servers need them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import torch
from torch import Tensor

from posttrain.policies._byte_tokenizer import END_TOKEN_ID, VOCABULARY_SIZE, write_byte_tokenizer
from posttrain.policies.tokenizer import Tokenizer
from posttrain.serving.server import Service
from tests.engines.scripted import ScriptedPolicy, serve

ASSISTANT = VOCABULARY_SIZE - 1
HERMES = (
    "{% if tools %}{{ '<|system|>' }}Call as <tool_call>{...}</tool_call>. {% for tool in tools %}{{ tool | tojson }}"
    "{% endfor %}{{ '<|end|>' }}{% endif %}{% for m in messages %}{{ '<|user|>' ~ m.role ~ ':' ~ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}{{ '<|end|>' }}{% endfor %}{{ '<|assistant|>' }}"
)
BARE = HERMES.replace("Call as <tool_call>{...}</tool_call>. ", "Reply with JSON. ")


def tokenizer_of(folder: Path, template: str = HERMES) -> Tokenizer:
    write_byte_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(template)
    return Tokenizer.load(folder)


def says(text: str, folder: Path, template: str = HERMES) -> ScriptedPolicy:
    """A model that replies to everything with a text."""
    reply = [*text.encode(), END_TOKEN_ID]

    def logits(tokens: tuple[int, ...]) -> Tensor:
        written = len(tokens) - 1 - max(place for place, token in enumerate(tokens) if token == ASSISTANT)
        out = torch.zeros(VOCABULARY_SIZE)
        out[reply[written]] = 1000.0
        return out

    return speaks(logits, folder, template)


def speaks(logits: Callable[[tuple[int, ...]], Tensor], folder: Path, template: str = HERMES) -> ScriptedPolicy:
    """A model with some logits."""
    policy = ScriptedPolicy(logits, VOCABULARY_SIZE, context=2048)
    policy.tokenizer = tokenizer_of(folder, template)  # type: ignore[assignment]
    return policy


def talk(policy: Any, work: Callable[[httpx2.AsyncClient], Awaitable[Any]]) -> Any:
    """Let a client talk to a server of a policy."""
    service = Service(serve(policy), "tester")

    async def run() -> Any:
        transport = httpx2.ASGITransport(app=service.app())
        async with httpx2.AsyncClient(transport=transport, base_url="http://test/v1") as client:
            return await work(client)

    return asyncio.run(run())
