"""Added terms: divergence from a reference, entropy.

A penalty acts either in the loss (differentiated) or in the reward (a number per sampled token, not differentiated).
One whose settings follow from what was seen keeps a state, which is JSON: `at` a state it has its settings of the
moment, and `observe` gives the state of the next step.
"""

from collections.abc import Mapping
from typing import Any

from posttrain.component import Component
from posttrain.types import Batch, FloatArray, PerToken, Tokens, Trajectory

State = Mapping[str, Any]


class Penalty(Component):
    """A term added to the objective's loss, taken from the reward, or both."""

    @property
    def needs(self) -> frozenset[str]:
        """Costly signals that it reads: ``entropy``, ``<role>_logp``, ``<role>_kl`` (in the reward only)."""
        return frozenset()

    def start(self) -> State:
        """State before the first step."""
        return {}

    def at(self, state: State) -> "Penalty":
        """With settings as they are in this state; most penalties stay as they are."""
        return self

    def observe(self, state: State, batch: Batch) -> State:
        """The state after a step in which this batch was learned from."""
        return state

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] term to add to each token's loss; None when it acts on the reward."""
        return None

    def in_reward(self, trajectory: Trajectory, signals: Mapping[str, FloatArray]) -> FloatArray | None:
        """[T] amount to add to each token's reward; None when it acts on the loss."""
        return None
