"""Credit of a mixture of rewards whose weights are learned so that learning from it raises one of them.

Source: BARFI, Gupta et al. 2023, arXiv:2310.19007, in its first order: weights of auxiliary rewards follow the
derivative of the primary reward through one update. For a natural gradient of the policy that derivative is the
covariance of both rewards under the policy, within a task. Parts of the score are mixed:

    y = the primary reward less its mean in the group, x_k = part k less its mean, over rollouts where both are known
    slope of w_k = mean of (y - sum_j w_j x_j) x_k - decay w_k, by Adam, upwards             A = sum_k w_k x_k + own y

so that w_k rises with the covariance of part and primary reward, and a part that is at the expense of it becomes
negative. The subtracted mixture bounds the size: with a fixed policy weights end at the least squares of the primary
part. Where the primary part is not known, as where labels are few or late, the mixture stands for it. The weights, the
moments of Adam and the number of updates are the state, which is in checkpoints. Metrics: ``weight/PART``, and
``explained``, the share of the primary part's variance in the step that the mixture explains.

Differs: the first order only, without the curvature of the inner level, which the stage `outer` has; weights do not
depend on the state of an environment. A policy that never leaves what a misleading part rewards teaches nothing about
the others.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, centered, per_token
from posttrain.errors import UserError
from posttrain.types import Batch, Credit, IntArray

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@frozen
class Mixed(Advantage):
    """Weighs parts of the score by learned weights."""

    primary: Annotated[str, Field(min_length=1)] | None = None
    """The part that the mixture should raise, which may be unknown for most rollouts; None is the reward itself."""
    weights: Mapping[str, float] = Field(default_factory=dict)
    """The parts that are mixed, with their weights at the start."""
    own: NonNegativeFloat = 1.0
    """Weight of the primary part itself, where it is known; not learned, and 0 learns from the mixture alone."""
    rate: NonNegativeFloat = 0.02
    """Step size of the weights."""
    decay: NonNegativeFloat = 0.0
    """Pull of the weights towards 0, per unit of the step size."""
    nonnegative: bool = False
    """Whether weights below 0 are set to 0."""

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Refuse a named primary part without others, and one that explains itself."""
        if self.primary is not None and not self.weights:
            raise PydanticCustomError("part", "the part '{name}' needs weights of other parts", {"name": self.primary})
        if self.primary in self.weights:
            context = {"name": self.primary}
            raise PydanticCustomError("part", "the primary part '{name}' explains itself; mix others", context)
        return self

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def start(self) -> State:
        """State before the first step: the weights given, no update."""
        zeros = [0.0] * len(self.weights)
        return {"weights": list(self.weights.values()), "first": zeros, "second": zeros, "updates": 0}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Metrics: the weights, and what the mixture explains."""
        y_N = batch.return_N if self.primary is None else _values(batch, self.primary)
        x_KN = np.array([_values(batch, name) for name in self.weights]).reshape(-1, len(y_N))
        moved = self._moved(state, y_N, x_KN, batch)
        total_N = self.own * _centered(y_N, batch.group_N)
        for weight, x_N in zip(moved["weights"], x_KN, strict=True):
            total_N = total_N + weight * _centered(x_N, batch.group_N)
        metrics = {f"weight/{name}": weight for name, weight in zip(self.weights, moved["weights"], strict=True)}
        left, all_of = _squares(np.array(moved["weights"]), y_N, x_KN, batch)
        if all_of > 0.0:
            metrics["explained"] = 1.0 - left / all_of
        return moved, Credit(advantages=per_token(total_N, batch), metrics=metrics)

    def _moved(self, state: State, y_N: Reals, x_KN: Reals, batch: Batch) -> State:
        """The weights after one step of Adam; the same where no group has two rollouts with the primary part."""
        weights = np.array(state["weights"], np.float64)
        slope = slopes(weights, y_N, x_KN, batch)
        if slope is None:
            return state
        slope = slope - self.decay * weights
        count = state["updates"] + 1
        first = BETAS[0] * np.array(state["first"]) + (1 - BETAS[0]) * slope
        second = BETAS[1] * np.array(state["second"]) + (1 - BETAS[1]) * slope**2
        step = self.rate * sqrt(1 - BETAS[1] ** count) / (1 - BETAS[0] ** count)
        weights = weights + step * first / (np.sqrt(second) + EPSILON * sqrt(1 - BETAS[1] ** count))
        weights = np.maximum(weights, 0.0) if self.nonnegative else weights
        return {
            "weights": weights.tolist(),
            "first": first.tolist(),
            "second": second.tolist(),
            "updates": count,
        }


def slopes(weights: Reals, y_N: Reals, x_KN: Reals, batch: Batch) -> Reals | None:
    """[K] minus the derivative of half the mean squared difference of primary part and mixture; None without data."""
    known = _known(y_N, x_KN, batch)
    if known is None:
        return None
    y, x = known
    return np.asarray(x @ (y - weights @ x) / len(y))


def _squares(weights: Reals, y_N: Reals, x_KN: Reals, batch: Batch) -> tuple[float, float]:
    """Squared differences of primary part and mixture, and squares of the primary part."""
    known = _known(y_N, x_KN, batch)
    if known is None:
        return 0.0, 0.0
    y, x = known
    return float(np.sum((y - weights @ x) ** 2)), float(np.sum(y**2))


def _known(y_N: Reals, x_KN: Reals, batch: Batch) -> tuple[Reals, Reals] | None:
    """Both centred over the rollouts of each group where the primary part is known; None without two of one group.

    A part that is not known there counts as its mean.
    """
    place_M = np.flatnonzero(~np.isnan(y_N))
    group_M = batch.group_N[place_M]
    if not len(place_M) or np.bincount(group_M).max() < 2:
        return None
    _, group_M = np.unique(group_M, return_inverse=True)
    return centered(y_N[place_M], group_M), np.array([_centered(x_N[place_M], group_M) for x_N in x_KN]).reshape(
        -1, len(place_M)
    )


def _values(batch: Batch, name: str) -> Reals:
    """[N] value of a part of each score, NaN where it is not known. Raises `UserError` for a part that no score has."""
    found = dict.fromkeys(part for t in batch.trajectories if t.score is not None for part in t.score.parts)
    if found and name not in found:
        raise UserError(f"the advantage 'mixed' reads the part '{name}', and scores have the parts {', '.join(found)}")
    values = []
    for trajectory in batch.trajectories:
        part = trajectory.score.parts.get(name) if trajectory.score is not None else None
        known = part is not None and part.applies and part.status != "error"
        values.append(part.value if known and part is not None else np.nan)
    return np.array(values, np.float64)


def _centered(x_N: Reals, group_N: IntArray) -> Reals:
    """[N] each known value less the mean of those in its group; 0 where it is not known."""
    known = ~np.isnan(x_N)
    found = np.zeros(len(x_N))
    if known.any():
        _, place = np.unique(group_N[known], return_inverse=True)
        found[known] = centered(x_N[known], place)
    return found
