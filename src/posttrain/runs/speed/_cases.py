"""Benchmarks of the engine and the learner alone."""

import asyncio
import time
from typing import Any

import numpy as np
import torch

from posttrain.engines import Sampling, wait_for
from posttrain.policies import Policy
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.speed._limits import synchronize
from posttrain.runs.speed.sizes import Size
from posttrain.runs.speed.workloads import GROUP, Workload
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, OLD_LOGP, trained_in
from posttrain.types import Completion

CACHES = 1 << 28
"""Bytes of weights up to which a processor may keep them near: reading them from memory is then no limit."""


class SamplingCase:
    """All completions of a workload at once, one request per prompt; the model ends by itself, or never."""

    def __init__(self, policy: Policy, recipe: Recipe, size: Size, workload: Workload, device: torch.device) -> None:
        self.size, self.workload, self.device = size, workload, device
        self._policy = policy
        self._server = recipe.engine.serve(policy, seed=0)
        self._turn = 0

    def turn(self) -> dict[str, Any]:
        """Sample them; draws differ from turn to turn, and with them the work, if the model ends by itself."""
        before = self._server.counters
        begun = time.perf_counter()
        groups = wait_for(self._sample())
        synchronize(self.device)
        seconds = time.perf_counter() - begun
        done = self._server.counters - before
        lengths = [[len(completion.token_ids) for completion in group] for group in groups]
        flops = self.size.sampling_flops(self.workload.prompt_lengths, lengths)
        result = {"seconds": seconds, "tokens": done.sampled_tokens, "flops": flops}
        width = next(self._policy.parameters()).element_size()
        if width * self.size.weights > CACHES:
            steps, prompts = done.decode_steps, self.workload.prompt_lengths
            result["bytes"] = self.size.sampling_bytes(prompts, lengths, steps=steps, width=width)
        return result | gpu_memory(self.device)

    async def _sample(self) -> list[list[Completion]]:
        self._turn += 1
        sampling = Sampling(max_tokens=self.workload.limit)
        samplers = [self._server.bind(self._turn, place) for place in range(len(self.workload.prompts))]
        requests = [
            sampler.sample(np.array(prompt), GROUP, sampling)
            for sampler, prompt in zip(samplers, self.workload.prompts, strict=True)
        ]
        return list(await asyncio.gather(*requests))


class LearningCase:
    """One optimizer step on the workload's sequences, with synthetic advantages."""

    def __init__(self, policy: Policy, recipe: Recipe, size: Size, workload: Workload, device: torch.device) -> None:
        from posttrain.training.learner import Learner, Loss
        from posttrain.training.packing import Example

        self.device = device
        stage = rl_of(recipe)
        rng = np.random.Generator(np.random.Philox(key=[0, 2]))
        self.examples = []
        for group, (prompt, lengths) in enumerate(zip(workload.prompts, workload.lengths, strict=True)):
            for n in lengths:
                columns = {BEHAVIOR_LOGP: -5.5, OLD_LOGP: -5.5, ADVANTAGE: rng.normal()}
                self.examples.append(
                    Example(
                        token_ids=np.concatenate([prompt, rng.integers(0, 256, n)]).astype(np.int64),
                        positions=np.arange(len(prompt), len(prompt) + n),
                        turn_T=np.zeros(n, np.int64),
                        group=group,
                        columns={signal: np.full(n, value, np.float32) for signal, value in columns.items()},
                    )
                )
        self.tokens = sum(len(example.token_ids) for example in self.examples)
        self._flops = size.learning_flops(workload.prompt_lengths, workload.lengths)
        needs = trained_in(stage.objective.needs)
        self._loss = Loss(per_token=stage.objective, reducer=stage.reducer, needs=needs)
        self.learner = Learner(policy, stage.learner, seed=0, num_steps=10_000)

    def turn(self) -> dict[str, Any]:
        """Forward, backward, update."""
        begun = time.perf_counter()
        self.learner.step(self.examples, self._loss, progress=0.0)
        synchronize(self.device)
        result = {"seconds": time.perf_counter() - begun, "tokens": self.tokens, "flops": self._flops}
        return result | gpu_memory(self.device)


def gpu_memory(device: torch.device) -> dict[str, int]:
    """Peak memory of the GPU; empty without one."""
    return {"peak_gpu_bytes": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {}
