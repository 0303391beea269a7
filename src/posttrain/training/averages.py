"""Means of the metrics of a step, and how far its updates have moved the weights."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from posttrain.signals import LOGP, OLD_LOGP, Signal
from posttrain.training.packing import Example
from posttrain.types import FloatArray

LARGEST = 50.0
"""Log of a ratio that is counted; above it, any bound is passed."""


@dataclass
class Averages:
    """Running means of metrics over the tokens or sequences of each."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    computed_tokens: int = 0
    stopped: bool = False
    """Whether an update was skipped since the weights had moved too far (`Learning.stop_at`)."""

    def add(self, name: str, values: Tensor) -> None:
        """Add values of a metric."""
        values = values.detach().double()
        if name.endswith("_max"):
            self.sums[name] = max(self.sums.get(name, -math.inf), float(values.max()) if len(values) else -math.inf)
            self.counts[name] = 1
        elif len(values):
            self.sums[name] = self.sums.get(name, 0.0) + float(values.sum())
            self.counts[name] = self.counts.get(name, 0) + len(values)

    def means(self) -> dict[str, float]:
        """The mean of each metric, by name."""
        return {name: total / self.counts[name] for name, total in sorted(self.sums.items())}

    def moved(self, nats: float, most: float) -> bool:
        """Add how far the weights have moved, and whether that is too far, so that the step stops."""
        self.stopped = abs(nats) > most
        self.add("moved_nats", torch.tensor([nats]))
        self.add("stopped", torch.tensor([float(self.stopped)]))
        return self.stopped


def moved_by(
    examples: Sequence[Example], signals: Sequence[Mapping[Signal, FloatArray]], estimate: str = "difference"
) -> float:
    """How far weights have moved, in nats: the mean over sampled trajectories of d = log p - old log p, summed over
    tokens, or with ``k3`` of exp(d) - 1 - d; 0 without one.
    """
    sums = [
        float((own[LOGP] - example.columns[OLD_LOGP])[~example.demonstrated_T].sum(dtype=np.float64))
        for example, own in zip(examples, signals, strict=True)
        if LOGP in own and OLD_LOGP in example.columns and not example.demonstrated_T.all()
    ]
    if estimate == "k3":
        sums = [math.expm1(min(d, LARGEST)) - d for d in sums]
    return float(np.mean(sums)) if sums else 0.0
