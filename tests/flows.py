"""Small flows for tests: with random weights that do something, packed chains, and a sampler made of them."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain.components.noises.constant import Constant
from posttrain.components.shapes.flow import Flow
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.flow import FlowPolicy
from posttrain.policies.loading import load_policy
from posttrain.training.packing import Example, MicroBatch, example_of, pack
from posttrain.types import Completion, Segment, Task, Trajectory

CPU = torch.device("cpu")


def made_flow(*, seed: int = 0, dtype: str = "float32", **settings: Any) -> FlowPolicy:
    """A flow whose last layers are not zero."""
    shape = Flow(**{"width": 16, "layers": 1, "steps": 3, "noise": Constant(), **settings})
    policy = load_policy("policy", Model(source="new", shape=shape, trained=True), {}, CPU)
    assert isinstance(policy, FlowPolicy)
    policy.to(getattr(torch, dtype))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return policy


def sampled(
    policy: FlowPolicy, n: int = 3, *, prompt: str = "draw", key: int = 0, temperature: float = 1.0
) -> list[Completion]:
    sampler = Native().serve(policy, 0).bind(key)
    asked = sampler.prompt(Task(key="task", prompt=prompt))
    return asyncio.run(sampler.sample(asked.token_ids, n, Sampling(temperature=temperature), asked.vectors))


def trajectory_of(policy: FlowPolicy, completion: Completion, condition: tuple[float, ...] = ()) -> Trajectory:
    row = np.zeros((1, policy.width), np.float32)
    row[0, : len(condition)] = condition
    segments = (
        Segment(actor="prompt", token_ids=np.zeros(1, np.int64), vectors=row),
        Segment(
            actor="policy",
            token_ids=completion.token_ids,
            trained=True,
            logp=completion.logp,
            text=completion.text,
            vectors=completion.vectors,
        ),
    )
    return Trajectory(task=Task(key="task", prompt="draw"), segments=segments, stop_reason="stop")


def packed(*trajectories: Trajectory) -> MicroBatch:
    examples: list[Example] = [example_of(t, {}) for t in trajectories]
    return pack(examples, np.ones(len(examples), np.float32), CPU)


def signals(policy: FlowPolicy, *trajectories: Trajectory, needs: frozenset[str] = frozenset(), temperature: float = 1):  # type: ignore[no-untyped-def]
    batch = packed(*trajectories)
    return policy.evaluate(batch.packed, batch.positions_T, needs, temperature=temperature)


def saved(policy: FlowPolicy, folder: Path) -> FlowPolicy:
    policy.save(folder)
    again = load_policy("policy", Model(source=str(folder), trained=True), {}, CPU)
    assert isinstance(again, FlowPolicy)
    return again
