"""Temperature: the entropy of a model's own samples at several temperatures, and the one nearest to a target.

Source: AceReason-Nemotron 1.1, arXiv:2506.13284: the sampling temperature of reinforcement is chosen so that the
entropy of the distribution at that temperature is near 0.3, once, from the curve, and then fixed.

Entropy is the mean over sampled tokens of the entropy in nats of softmax(logits / T), with T the temperature that they
were sampled at. That of a model's own samples need not rise with T, since the texts change with it; so a grid is
measured, and the target is looked up between its neighbours. On a fixed text each position's entropy rises with T, so
that `temperature_for` finds the temperature by bisection: of the greedy answers, where the text is given.

    posttrain diagnose temperature runs/sft-1 tasks=mine.jsonl entropy=0.3

Differs: the paper has no formula for its entropy.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.types import FloatArray, Task

LOWEST: Final = 1e-3
HIGHEST: Final = 100.0
"""Temperatures between which a bisection searches."""


@frozen
class Temperature(Diagnostic):
    """Measures entropy by temperature, and finds the temperature for an entropy."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Prompts that are answered."""
    entropy: PositiveFloat = 0.3
    """The target, in nats a token."""
    grid: Annotated[tuple[PositiveFloat, ...], Field(min_length=2, max_length=32)] = (
        0.3,
        0.6,
        0.85,
        1.0,
        1.3,
        1.6,
        2.0,
    )
    """Temperatures of the samples, rising."""
    prompts: PositiveInt = 64
    """Tasks that are answered, from the first."""
    n: PositiveInt = 2
    """Samples of each at each temperature."""
    max_tokens: PositiveInt = 256
    """Longest sample."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample at each temperature; then find the temperature for the target, between samples and on a fixed text."""
        [subject] = subjects
        if list(self.grid) != sorted(set(self.grid)):
            raise UserError(f"grid={list(self.grid)}: temperatures must rise, each one once")
        policy = subject.load()
        server, tasks = subject.serve(policy), self.tasks.load()[: self.prompts]
        curve = [self._sampled(server, tasks, temperature) for temperature in self.grid]
        known = [(t, e) for t, e in zip(self.grid, curve, strict=True) if e is not None]
        own = crossing(known, self.entropy)
        greedy = self._written(server, tasks)
        fixed = temperature_for(lambda t: self._of(policy, greedy, t), self.entropy) if greedy else None
        values: dict[str, Any] = {
            "target": self.entropy,
            "tasks": len(tasks),
            "curve": [{"temperature": t, "entropy": e} for t, e in zip(self.grid, curve, strict=True)],
            "temperature": own,
            "temperature_on_fixed_text": fixed,
        }
        return Finding(values=values, lines=list(_lines(values)))

    def _sampled(self, server: Server, tasks: Sequence[Task], temperature: float) -> float | None:
        """Mean entropy of the tokens of samples at a temperature; None where the sampler gives none."""
        sampling = Sampling(temperature=temperature, max_tokens=self.max_tokens)

        async def one(task: Task) -> list[FloatArray]:
            sampler = server.bind("temperature", task.key, f"{temperature:g}")
            completions = await sampler.sample(sampler.prompt(task).token_ids, self.n, sampling)
            return [c.entropy for c in completions if c.entropy is not None]

        async def run() -> list[list[FloatArray]]:
            return list(await asyncio.gather(*map(one, tasks)))

        parts = [entropy for own in wait_for(run()) for entropy in own]
        flat = np.concatenate([np.zeros(0, np.float32), *parts])
        return float(np.mean(flat, dtype=np.float64)) if len(flat) else None

    def _written(self, server: Server, tasks: Sequence[Task]) -> list[Any]:
        """The greedy answers, each with its prompt and the number of the prompt's tokens."""
        sampling = Sampling(temperature=0.0, max_tokens=self.max_tokens)

        async def one(task: Task) -> Any:
            sampler = server.bind("temperature", task.key, "greedy")
            prompt = sampler.prompt(task).token_ids
            [completion] = await sampler.sample(prompt, 1, sampling)
            return np.concatenate([prompt, completion.token_ids]).astype(np.int64), len(prompt)

        async def run() -> list[Any]:
            return list(await asyncio.gather(*map(one, tasks)))

        return [row for row in wait_for(run()) if len(row[0]) > row[1]]

    def _of(self, policy: Any, written: Sequence[Any], temperature: float) -> float:
        """Mean entropy at a temperature over the tokens of fixed texts."""
        from posttrain.components.diagnostics._likelihoods import entropies_at

        return float(np.mean(np.concatenate(entropies_at(policy, written, temperature)), dtype=np.float64))


def temperature_for(entropy: Callable[[float], float], target: float, *, tolerance: float = 1e-3) -> float | None:
    """The temperature at which a rising entropy is the target, by bisection; None where none in the range is."""
    low, high = LOWEST, HIGHEST
    if not entropy(low) <= target <= entropy(high):
        return None
    for _ in range(60):
        middle = float((low * high) ** 0.5)
        found = entropy(middle)
        if abs(found - target) <= tolerance:
            return middle
        low, high = (middle, high) if found < target else (low, middle)
    return float((low * high) ** 0.5)


def crossing(curve: Sequence[tuple[float, float]], target: float) -> float | None:
    """The temperature at which a curve of entropies first crosses the target, on the line between two neighbours."""
    for (a, x), (b, y) in pairwise(curve):
        if min(x, y) <= target <= max(x, y):
            share = 0.0 if x == y else (target - x) / (y - x)
            return float(a + share * (b - a))
    return None


def _lines(values: dict[str, Any]) -> Sequence[str]:
    """The curve, and both temperatures."""
    rows = [
        f"T {row['temperature']:<5g} {'-' if row['entropy'] is None else format(row['entropy'], '.3f')} nats a token"
        for row in values["curve"]
    ]
    own, fixed = values["temperature"], values["temperature_on_fixed_text"]
    target = f"{values['target']:g} nats"
    return [
        *rows,
        f"own samples cross {target} nowhere on this grid" if own is None else f"own samples: {target} at T {own:.3g}",
        f"greedy answers, held fixed: {target} at {'no temperature' if fixed is None else f'T {fixed:.3g}'}",
    ]
