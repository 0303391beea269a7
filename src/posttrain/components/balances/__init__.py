"""Balances: the weights of reinforcement and imitation in the loss of each step.

Contract: the state is JSON. The shares of a step are a function of (state, seed, step, steps) alone, and the state
after it of what was measured in it. A share of 0 leaves its part out: nothing is sampled, or no demonstration is
evaluated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.component import Component
from posttrain.components.tasks import Tasks

State = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Weights of the losses of the two origins of tokens, each at least 0."""

    sampled: float = 1.0
    demonstrated: float = 1.0


class Balance(Component):
    """Chooses the shares of each step."""

    @property
    def source(self) -> Tasks | None:
        """Where the demonstrations of the validation are from; None takes those that are learned from."""
        return None

    @property
    def validated(self) -> int:
        """Demonstrations by which it measures ``validation_slope`` in a step that learns from both; 0 without."""
        return 0

    def start(self) -> State:
        """State before the first step."""
        return {}

    def shares(self, state: State, *, seed: int, step: int, steps: int) -> Shares:
        """The shares of step number `step`, counted from 0, of `steps`."""
        raise NotImplementedError

    def observe(self, state: State, measured: Mapping[str, float]) -> State:
        """The state after a step, from its metrics."""
        return state
