r"""GRPO-S: another advantage, scaled by how unlike the demonstration a rollout is, and by how well the prompt is met.

Source: DR-IRL, arXiv:2503.18991, of which secondary text with the displayed equations was read, and no code. For
rollout i of prompt j, with W its similarity to the demonstration and R the gap of its reward to that of the
demonstration (the parts of the reward `shadow`), d = 1 - W, and means over the rollouts of the prompt:

    alphaD_ji = sigmoid(d_ji) / sigmoid(mean_i d)
    alphaM_j  = sigmoid(mean of the gaps with (R_ji - mean_i R)^2 <= tau) / sigmoid(mean_i R)
    A_ji      = alphaD_ji alphaM_j times the other advantage's

A larger alphaD is a rollout less like the demonstration, hence a harder prompt. alphaM is 1 unless a gap is left out,
and where all are; without parts alpha is 1. Signs never change. The source has the coefficient once for each response
and once for each prompt: `per` is which. For each response the advantages of a prompt no longer sum to 0; the metric
``group_sum`` is the mean of |sum_i A_ji| over prompts.

Differs: tau has the unit of a squared reward, and its value is not in the text. Gaps are standardised first, over all
rollouts of the same domain in the batch, since each domain may have a reward model of its own scale.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, centered, group_std
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, IntArray, Trajectory


@frozen
class DynamicScaling(Advantage):
    """An advantage times a positive weight of the rollout or of its prompt."""

    advantage: Advantage = GroupMean()
    """The advantage that is scaled."""
    per: Literal["response", "prompt"] = "response"
    """Whether each rollout has its own weight, or all rollouts of a prompt have the mean of these."""
    tau: PositiveFloat = 1.0
    """Largest squared distance of a gap from the mean of its prompt that still counts, in the unit of `standardise`."""
    data: bool = True
    """Whether alphaD counts."""
    model: bool = True
    """Whether alphaM counts."""
    standardise: bool = True
    """Whether gaps are first put to mean 0 and standard deviation 1 over the rollouts of their domain in the batch."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the scaled advantage."""
        return self.advantage.needs

    @property
    def is_relative(self) -> bool:
        """That of the scaled advantage."""
        return self.advantage.is_relative

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the scaled advantage."""
        return self.advantage.tags

    def start(self) -> State:
        """State of the scaled advantage."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Scale the credit of the other advantage."""
        state, credit = self.advantage(state, batch)
        data_N, model_N, kept = self._weights(batch)
        alpha_N = data_N * model_N
        if self.per == "prompt":
            alpha_N = alpha_N - centered(alpha_N, batch.group_N)
        advantages = tuple(
            (alpha * a_T.astype(np.float64)).astype(np.float32)
            for alpha, a_T in zip(alpha_N, credit.advantages, strict=True)
        )
        mean_N = np.array([a_T.mean(dtype=np.float64) if len(a_T) else 0.0 for a_T in advantages])
        sums_G = np.bincount(batch.group_N, weights=mean_N, minlength=len(batch.groups))
        metrics = {
            "alpha": float(np.mean(alpha_N)) if len(alpha_N) else 1.0,
            "alpha_data_std": float(np.std(data_N)) if len(data_N) else 0.0,
            "alpha_model": float(np.mean(model_N)) if len(model_N) else 1.0,
            "gaps_kept": kept,
            "group_sum": float(np.abs(sums_G).mean()) if len(sums_G) else 0.0,
        }
        return state, replace(credit, advantages=advantages, metrics={**credit.metrics, **metrics})

    def _weights(self, batch: Batch) -> tuple[Reals, Reals, float]:
        """[N] alphaD and alphaM of each rollout, and the share of gaps that count."""
        count = len(batch.trajectories)
        data_N, model_N = np.ones(count), np.ones(count)
        unlike_N, gap_N = 1.0 - _parts(batch.trajectories, "similarity"), _parts(batch.trajectories, "gap")
        known_N = np.isfinite(gap_N) & np.isfinite(unlike_N)
        if self.standardise:
            gap_N[known_N] = _standardised(gap_N[known_N], _domains(batch.trajectories)[known_N])
        kept = []
        for group in range(len(batch.groups)):
            own = np.flatnonzero(known_N & (batch.group_N == group))
            if not len(own):
                continue
            near_N = (gap_N[own] - gap_N[own].mean()) ** 2 <= self.tau
            kept += near_N.tolist()
            if self.data:
                data_N[own] = _sigmoid(unlike_N[own]) / _sigmoid(unlike_N[own].mean())
            if self.model and near_N.any() and not near_N.all():
                model_N[own] = float(_sigmoid(gap_N[own][near_N].mean()) / _sigmoid(gap_N[own].mean()))
        return data_N, model_N, float(np.mean(kept)) if kept else 1.0


def _parts(trajectories: Sequence[Trajectory], name: str) -> Reals:
    """[N] the value of a part of each score; NaN without one."""
    parts = [t.score.parts.get(name) if t.score is not None else None for t in trajectories]
    return np.array([part.value if part is not None else math.nan for part in parts], np.float64)


def _domains(trajectories: Sequence[Trajectory]) -> IntArray:
    """[N] index of each one's domain."""
    names = {name: i for i, name in enumerate(dict.fromkeys(t.task.domain for t in trajectories))}
    return np.array([names[t.task.domain] for t in trajectories], np.int64)


def _standardised(x_N: Reals, group_N: IntArray) -> Reals:
    """[N] minus the mean of the group, in its standard deviations; 0 where that is 0."""
    std_N = group_std(x_N, group_N)
    return np.divide(centered(x_N, group_N), std_N, out=np.zeros_like(x_N), where=std_N > 0)


def _sigmoid(x: Reals) -> Reals:
    """Stable at extreme values: never 0, so that ratios are finite."""
    return np.exp(-np.logaddexp(0.0, -np.clip(x, -50.0, 50.0)))
