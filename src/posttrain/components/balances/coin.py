"""Imitation or reinforcement in each step, by a coin whose bias follows the norm of the gradient of imitation.

Source: SASR, Chen et al. 2025, arXiv:2505.13026. UNVERIFIED: of the paper only the outline is confirmed, a warm-up of
imitation, after which the share of the two is decided step by step from gradient norms. The formula is ours: with g the
newest norm of the gradient of imitation, and g_w its mean over the last steps of the warm-up, a step imitates if u < p
with u uniform in [0, 1) and p = g / (g + gamma g_w); p is 0 where both are 0. Norms are those before clipping.

Steps of reinforcement leave g as it is, so that p cannot return after a drift. With `refresh`, a step of imitation
follows after this many steps of reinforcement, whatever the coin, and measures g anew.

Differs: whether p is a probability of a step or a share of a batch, the value of gamma, and how g is kept up to date
are not known.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.balances import Balance, Shares, State

STEPS_OF_MEAN = 5
"""Last steps of the warm-up whose mean norm is the reference."""


@frozen
class Coin(Balance):
    """One of the two in each step."""

    warmup: PositiveInt = 20
    """Steps of imitation at the start."""
    gamma: PositiveFloat = 1.0
    """Weight of the norm of the warm-up; with 1 the coin is fair as long as the norm stays what it was."""
    refresh: NonNegativeInt = 0
    """Steps of reinforcement in a row after which a step imitates, to measure the norm anew; 0 never does."""

    def start(self) -> State:
        """State before the first step: the norms of the warm-up, the newest one, and the last choice."""
        return {"warmup": [], "last": 0.0, "in_a_row": 0, "steps": 0}

    def shares(self, state: State, *, seed: int, step: int, steps: int) -> Shares:
        """All for imitation, or all for reinforcement."""
        return Shares(sampled=0.0, demonstrated=1.0) if self._imitates(state, seed, step) else Shares(demonstrated=0.0)

    def probability(self, state: State) -> float:
        """P of a step of imitation, after the warm-up."""
        own = state["warmup"][-STEPS_OF_MEAN:]
        reference = self.gamma * sum(own) / max(len(own), 1)
        total = state["last"] + reference
        return state["last"] / total if total > 0 else 0.0

    def observe(self, state: State, measured: Mapping[str, float]) -> State:
        """Keep the norm of a step of imitation."""
        imitated = measured.get("share/demonstrated", 0.0) > 0
        norm = measured.get("gradient_norm", state["last"]) if imitated else state["last"]
        warm = state["steps"] < self.warmup
        return {
            "warmup": [*state["warmup"], norm][-STEPS_OF_MEAN:] if warm else state["warmup"],
            "last": norm,
            "in_a_row": 0 if imitated else state["in_a_row"] + 1,
            "steps": state["steps"] + 1,
        }

    def _imitates(self, state: State, seed: int, step: int) -> bool:
        if step < self.warmup or (self.refresh and state["in_a_row"] >= self.refresh):
            return True
        u = float(np.random.default_rng([seed, step]).random())
        return u < self.probability(state)
