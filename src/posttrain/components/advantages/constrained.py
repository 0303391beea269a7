"""Credit of a reward and of behaviors that must occur at requested rates, with weights that are learned between them.

Source: direct behavior specification, Roy et al. 2022, arXiv:2112.12228, by its code (lagrangian_methods.py of
ubisoft/DirectBehaviorSpecification at 2ffb613), and J. Roy's thesis on reward specification. A behavior is a part of
the score: 1 where its status is ok, 0 where it is wrong; where it does not apply it counts for nothing.

    lambda = softmax(z), z_0 of the reward          loss of z = sum_k sign_k lambda_k (m_k - t_k), by Adam
    w_k = sign_k lambda_k, w_0 = 1 - sum |w_k|      A = sum_k w_k (c_k - mean of c_k in the group)

m_k is the share over the last `window` rollouts in which the behavior is known, t_k the requested rate; the sign is +1
for a lower bound and -1 for an upper one. So the weight of a broken constraint grows, and that of a kept one shrinks. A
constraint that cannot be met takes the reward's weight, which is the metric ``weight/reward``.

`bootstrap` names an easier sign of success: where its weight is larger than that of the reward, the reward has it.
Without `normalized` the weights are max(z_k, 0) and that of the reward is 1.

Differs: each part has the group's mean as its baseline, in place of a critic of its own. Logits move once a step of
rollouts, there once in ten updates; nothing is divided by a standard deviation, as weights sum to 1.
"""

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, centered, per_token
from posttrain.types import Batch, Credit

Rate = Annotated[float, Field(ge=0.0, le=1.0)]
REWARD = "reward"
FIRST = 0.02
"""Every logit at the start."""
BETAS = (0.9, 0.999)
EPSILON = 1e-5


@frozen
class Constrained(Advantage):
    """Weighs the reward and behaviors by learned shares."""

    at_least: Mapping[str, Rate] = Field(default_factory=dict)
    """Lowest rate of each behavior, by the name of its part."""
    at_most: Mapping[str, Rate] = Field(default_factory=dict)
    """Highest rate."""
    bootstrap: str | None = None
    """Behavior of `at_least` whose weight the reward has, where it is larger than its own."""
    normalized: bool = True
    """Whether weights are shares that sum to 1."""
    rate: NonNegativeFloat = 0.01
    """Step size of the logits: 100 times the policy's in the source."""
    window: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Rollouts over which rates are taken."""

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Refuse a part with two bounds of one side, one named as the reward, and an unknown bootstrap."""
        if REWARD in {*self.at_least, *self.at_most}:
            raise PydanticCustomError("part", "no behavior can be named 'reward', which stands for the reward itself")
        if self.bootstrap is not None and self.bootstrap not in self.at_least:
            context = {"name": self.bootstrap, "known": ", ".join(self.at_least) or "none"}
            raise PydanticCustomError("part", "bootstrap '{name}' is no behavior of at_least ({known})", context)
        return self

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def start(self) -> State:
        """State before the first step: equal logits, no rollout seen."""
        count = 1 + len(self.at_least) + len(self.at_most)
        zeros = [0.0] * count
        return {"logits": [FIRST] * count, "first": zeros, "second": zeros, "updates": 0, "seen": {}}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Metrics: the weights and the rates."""
        found = [self._behavior(batch, name) for name, _, _ in self._bounds()]
        seen = {
            label: [*state["seen"].get(label, ()), *own_N[~np.isnan(own_N)].tolist()][-self.window :]
            for (label, own_N) in zip(self._labels(), found, strict=True)
        }
        moved = {**self._moved(state, seen), "seen": seen}
        weights = self.weights(moved)
        total_N = weights[REWARD] * centered(batch.return_N, batch.group_N)
        for label, own_N in zip(self._labels(), found, strict=True):
            total_N = total_N + weights[label] * _centered_known(own_N, batch)
        rates = {f"rate/{label}": float(np.mean(own)) for label, own in seen.items() if own}
        metrics = {**{f"weight/{label}": value for label, value in weights.items()}, **rates}
        return moved, Credit(advantages=per_token(total_N, batch), metrics=metrics)

    def weights(self, state: State) -> dict[str, float]:
        """The weight of the reward, and of each bound with its sign."""
        shares = self._shares(np.array(state["logits"], np.float64))
        signs = [sign for _, _, sign in self._bounds()]
        own = [float(sign * share) for sign, share in zip(signs, shares[1:], strict=True)]
        of_reward = float(shares[0])
        if self.bootstrap is not None:
            of_reward = max(of_reward, own[[*self.at_least].index(self.bootstrap)])
        return {REWARD: of_reward, **dict(zip(self._labels(), own, strict=True))}

    def _shares(self, logits: Reals) -> Reals:
        if not self.normalized:
            return np.array([1.0, *np.maximum(logits[1:], 0.0)])
        raised = np.exp(logits - logits.max())
        return np.asarray(raised / raised.sum())

    def _bounds(self) -> Iterator[tuple[str, float, float]]:
        """Part, rate and sign of each bound."""
        yield from ((name, rate, 1.0) for name, rate in self.at_least.items())
        yield from ((name, rate, -1.0) for name, rate in self.at_most.items())

    def _labels(self) -> list[str]:
        """A name for each bound; a part with two of them has the side in it."""
        twice = self.at_least.keys() & self.at_most.keys()
        return [
            f"{name}/{'at_least' if sign > 0 else 'at_most'}" if name in twice else name
            for name, _, sign in self._bounds()
        ]

    def _behavior(self, batch: Batch, name: str) -> Reals:
        """[N] 1 or 0 of each rollout, NaN where it is not known."""
        values = []
        for trajectory in batch.trajectories:
            part = trajectory.score.parts.get(name) if trajectory.score is not None else None
            known = part is not None and part.applies and part.status != "error"
            values.append(float(part.status == "ok") if known and part is not None else np.nan)
        return np.array(values, np.float64)

    def _moved(self, state: State, seen: Mapping[str, list[float]]) -> State:
        """The logits after a step of Adam on their loss."""
        logits = np.array(state["logits"], np.float64)
        gaps = [0.0]
        for label, (_, rate, sign) in zip(self._labels(), self._bounds(), strict=True):
            gaps.append(sign * (float(np.mean(seen[label])) - rate) if seen[label] else 0.0)
        gap, shares = np.array(gaps), self._shares(logits)
        slope = shares * (gap - shares @ gap) if self.normalized else gap * (logits > 0.0)
        count = state["updates"] + 1
        first = BETAS[0] * np.array(state["first"]) + (1 - BETAS[0]) * slope
        second = BETAS[1] * np.array(state["second"]) + (1 - BETAS[1]) * slope**2
        step = self.rate * sqrt(1 - BETAS[1] ** count) / (1 - BETAS[0] ** count)
        logits = logits - step * first / (np.sqrt(second) + EPSILON * sqrt(1 - BETAS[1] ** count))
        return {
            "logits": logits.tolist(),
            "first": first.tolist(),
            "second": second.tolist(),
            "updates": count,
        }


def _centered_known(own_N: Reals, batch: Batch) -> Reals:
    """[N] each known value less the mean of those in its group; 0 where it is not known."""
    known = ~np.isnan(own_N)
    found = np.zeros(len(own_N))
    if known.any():
        _, place = np.unique(batch.group_N[known], return_inverse=True)
        found[known] = centered(own_N[known], place)
    return found
