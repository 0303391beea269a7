"""Accelerators by name, and how long calls of a model take on them, from their data sheets: nothing is measured.

Dense bfloat16 arithmetic, memory and links of one device, as their makers state them, times a share that is reached.
What a call takes is the sum of its arithmetic or memory traffic and of what tensor-parallel ranks exchange, with the
bubble of a pipeline. Estimates of this kind rank placements; seconds of a run may differ by a factor.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from posttrain.cluster.planning.calls import Candidate, Layout, filtered
from posttrain.component import nearest
from posttrain.errors import UserError

PER_NODE: Final = 8
"""Devices of a node."""
ARITHMETIC: Final = 0.4
"""Share of the arithmetic that training and scoring reach."""
TRAFFIC: Final = 0.6
"""Share of memory and links that is reached."""
WIDTH: Final = 2
"""Bytes of a weight and of a key or value: bfloat16."""
STATE: Final = 16
"""Bytes of a trained weight beside it: gradient and master in float32, two moments."""
KEPT: Final = 34
"""Bytes that a layer keeps of a token for the backward pass, by width (Korthikanti et al. 2022, arXiv:2205.05198, with
attention computed anew)."""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One device."""

    flops: float
    """Dense bfloat16 operations a second."""
    memory: int
    """Bytes."""
    traffic: float
    """Bytes a second of its memory."""
    link: float
    """Bytes a second to another device of its node, one way."""
    network: float
    """Bytes a second to another node, one way."""


ACCELERATORS: Final = {
    "a100": Accelerator(flops=312e12, memory=80_000_000_000, traffic=2.0e12, link=300e9, network=25e9),
    "h100": Accelerator(flops=989e12, memory=80_000_000_000, traffic=3.35e12, link=450e9, network=50e9),
    "h200": Accelerator(flops=989e12, memory=141_000_000_000, traffic=4.8e12, link=450e9, network=50e9),
    "l40s": Accelerator(flops=362e12, memory=48_000_000_000, traffic=0.864e12, link=32e9, network=25e9),
}
"""By name: NVIDIA's data sheets of the SXM (L40S: PCIe) cards; networks of 200 or 400 Gbit/s a device."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the time of a call depends on, of a model."""

    parameters: int
    layers: int
    width: int
    kv_width: int
    """Width of all keys of a token."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """What is done in one step."""

    sequences: int
    prompt: int
    """Tokens of a prompt."""
    response: int
    """Tokens of a response."""

    @property
    def tokens(self) -> int:
        """Tokens of a sequence."""
        return self.prompt + self.response


def read_devices(text: str) -> tuple[int, Accelerator]:
    """``COUNT:NAME``. Raises `UserError` for anything else."""
    count, _, name = text.partition(":")
    if not count.isdecimal() or not int(count):
        raise UserError(f"gpus={text}: write COUNT:NAME, for example gpus=16:h100")
    if name not in ACCELERATORS:
        raise UserError(f"gpus={text}: there are no numbers of '{name}'; {nearest(name, list(ACCELERATORS))}")
    if int(count) > PER_NODE and int(count) % PER_NODE:
        raise UserError(f"gpus={text}: more than {PER_NODE} devices are whole nodes of {PER_NODE}")
    return int(count), ACCELERATORS[name]


def meshes(devices: int) -> Iterator[frozenset[int]]:
    """Aligned powers of two inside a node, and whole consecutive nodes."""
    size = 1
    while size <= min(devices, PER_NODE):
        for first in range(0, devices - size + 1, size):
            yield frozenset(range(first, first + size))
        size *= 2
    nodes = devices // PER_NODE
    for count in range(2, nodes + 1):
        for first in range(nodes - count + 1):
            yield frozenset(range(first * PER_NODE, (first + count) * PER_NODE))


def layouts(size: int) -> Iterator[Layout]:
    """All degrees of pipeline, data and tensor parallelism of that many devices."""
    for pipeline in range(1, size + 1):
        for tensor in range(1, size // pipeline + 1):
            if size % (pipeline * tensor) == 0:
                yield pipeline, size // (pipeline * tensor), tensor


def candidates(
    kind: Literal["generate", "score", "train"], model: Sizes, amount: Amount, devices: int, on: Accelerator
) -> list[Candidate]:
    """How a call can be executed, with seconds and bytes a device; only what fits."""
    found = []
    for mesh in meshes(devices):
        for layout in layouts(len(mesh)):
            pipeline, data, tensor = layout
            if tensor > PER_NODE or amount.sequences < data * pipeline or model.layers < pipeline:
                continue
            static = model.parameters * WIDTH // (pipeline * tensor)
            if kind == "train":
                static += model.parameters * STATE // len(mesh)  # shared out among data-parallel ranks
            found.append(
                Candidate(
                    devices=mesh,
                    layout=layout,
                    seconds=seconds(kind, model, amount, layout, on),
                    static=static,
                    active=active(kind, model, amount, layout),
                )
            )
    return filtered(
        found, batch=amount.sequences, trains=kind == "train", per_node=PER_NODE, capacity=on.memory, most=200
    )


def seconds(
    kind: Literal["generate", "score", "train"], model: Sizes, amount: Amount, layout: Layout, on: Accelerator
) -> float:
    """How long a call takes."""
    pipeline, data, tensor = layout
    own = -(-amount.sequences // data)
    passes = {"generate": 1, "score": 1, "train": 3}[kind]
    tokens = own * (amount.prompt if kind == "generate" else amount.tokens)
    bubble = 1.0 + (pipeline - 1) / own
    arithmetic = 2.0 * model.parameters * tokens * passes / (pipeline * tensor) / (on.flops * ARITHMETIC) * bubble
    shared = 2 * (tensor - 1) / tensor * WIDTH * model.width * 2 * model.layers / pipeline
    exchanged = tokens * passes * shared / (on.link * TRAFFIC)
    if kind == "train":
        wire = on.link if pipeline * data * tensor <= PER_NODE else on.network
        exchanged += 2 * (data - 1) / data * 4 * model.parameters / (pipeline * tensor) / (wire * TRAFFIC)
    if kind != "generate":
        return arithmetic + exchanged
    held = own * (amount.prompt + amount.response / 2) * 2 * model.layers * model.kv_width * WIDTH
    read = (model.parameters * WIDTH + held) / tensor / (on.traffic * TRAFFIC)  # of all stages, one after the other
    computed = 2.0 * model.parameters * own / tensor / (on.flops * ARITHMETIC)
    token = max(read, computed) + own * shared * pipeline / (on.link * TRAFFIC)
    return arithmetic + exchanged + amount.response * token


def active(kind: str, model: Sizes, amount: Amount, layout: Layout) -> int:
    """Bytes a device while the call runs: keys and values of all sequences, or what one of them keeps."""
    pipeline, data, tensor = layout
    own = math.ceil(amount.sequences / data)
    if kind == "generate":
        return own * amount.tokens * 2 * model.layers * model.kv_width * WIDTH // (pipeline * tensor)
    kept = KEPT * model.layers // pipeline if kind == "train" else KEPT
    return amount.tokens * model.width * kept // tensor


def transfer(model: Sizes, target: Layout, on: Accelerator) -> float:
    """Seconds to bring a device its share of the weights of another layout, by the network."""
    return model.parameters * WIDTH / (target[0] * target[2]) / (on.network * TRAFFIC)
