"""Another advantage, in which attempts at the rarer kind of task count more: a verifier sees more of one label.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034: the verifier's advantages are multiplied by a scale of the true
label's class, proportional to 1 / sqrt(n of the class), smoothed by an exponential moving average. Rewards stay as they
are.

The class of an attempt is its task's answer (the rule's verdict, ``+`` or ``-``). Scales are sqrt(n / (c n_class)), for
n attempts of c classes known so far, which is 1 where all are as many. A class that a step does not have keeps its
average.

Differs: momentum and the constant in front are not in what could be read of the paper.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.signals import Signal
from posttrain.types import Batch, Credit


@frozen
class ClassBalanced(Advantage):
    """An advantage times a scale of the task's class."""

    advantage: Advantage = GroupMean()
    """What is scaled."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Share of the old average that stays when a step is seen, in [0, 1); the first step is taken as it is."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Those of what is scaled."""
        return self.advantage.needs

    def start(self) -> State:
        """No class was seen."""
        return {"scales": {}, "inner": self.advantage.start()}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Scale what the advantage inside gives."""
        inner, credit = self.advantage(state["inner"], batch)
        labels = [t.task.answer or "" for t in batch.trajectories]
        scales = self._renewed(state["scales"], labels)
        advantages = tuple(
            np.asarray(a_T * scales[label], np.float32) for a_T, label in zip(credit.advantages, labels, strict=True)
        )
        metrics = {f"scale/{label or 'none'}": scale for label, scale in scales.items()}
        return {"scales": scales, "inner": inner}, Credit(
            advantages=advantages, value_targets=credit.value_targets, metrics={**credit.metrics, **metrics}
        )

    def _renewed(self, scales: State, labels: list[str]) -> dict[str, float]:
        """The averages after a step with these labels."""
        seen = {label: labels.count(label) for label in sorted(set(labels))}
        classes = len(seen.keys() | scales.keys())
        now = {label: float(np.sqrt(len(labels) / (classes * count))) for label, count in seen.items()}
        renewed = {
            label: self.momentum * scales[label] + (1.0 - self.momentum) * scale if label in scales else scale
            for label, scale in now.items()
        }
        return {**scales, **renewed}
