"""Another advantage, with a higher weight for rollouts of rarer classes: a verifier's labels are unbalanced.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034: the verifier's advantages are multiplied by a scale of the true
label's class, proportional to 1 / sqrt(n of the class), smoothed by an exponential moving average. Rewards do not
change.

The class of a rollout is its task's answer (the rule's verdict, ``+`` or ``-``). Scales are sqrt(n / (c n_class)), for
n rollouts of c classes seen so far, which is 1 where all classes are equally frequent. A class that a step does not
have keeps its average.

Differs: the momentum and the constant factor are not in the accessible parts of the paper.
"""

from typing import Annotated, Literal

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
    """The advantage that is scaled."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Share of the old average that is kept at each step, in [0, 1). The first step is the first average."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the scaled advantage."""
        return self.advantage.needs

    @property
    def is_relative(self) -> bool:
        """That of the inner advantage."""
        return self.advantage.is_relative

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.advantage.reads

    def start(self) -> State:
        """State before the first step: no class seen."""
        return {"scales": {}, "inner": self.advantage.start()}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Scale the inner advantage's credit."""
        inner, credit = self.advantage(state["inner"], batch)
        labels = [t.task.answer or "" for t in batch.trajectories]
        scales = self._updated(state["scales"], labels)
        advantages = tuple(
            np.asarray(a_T * scales[label], np.float32) for a_T, label in zip(credit.advantages, labels, strict=True)
        )
        metrics = {f"scale/{label or 'none'}": scale for label, scale in scales.items()}
        return {"scales": scales, "inner": inner}, Credit(
            advantages=advantages, value_targets=credit.value_targets, metrics={**credit.metrics, **metrics}
        )

    def _updated(self, scales: State, labels: list[str]) -> dict[str, float]:
        """The averages after a step with these labels."""
        seen = {label: labels.count(label) for label in sorted(set(labels))}
        classes = len(seen.keys() | scales.keys())
        now = {label: float(np.sqrt(len(labels) / (classes * count))) for label, count in seen.items()}
        updated = {
            label: self.momentum * scales[label] + (1.0 - self.momentum) * scale if label in scales else scale
            for label, scale in now.items()
        }
        return {**scales, **updated}
