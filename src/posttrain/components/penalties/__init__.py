"""Penalties: terms added to the loss or the reward, such as KL from a reference and entropy.

A penalty acts either in the loss (differentiated) or in the reward (a number per sampled token, not differentiated).
An adaptive penalty has a state, which is JSON: `at` returns the penalty with the settings of a state, and `observe`
returns the state after a batch. The rewards of a step are those of the state before its batch, and its loss is that of
the state after it, since updates come last.
"""

from collections.abc import Mapping
from typing import Any

from posttrain.component import Component
from posttrain.signals import Signal
from posttrain.types import Batch, FloatArray, PerToken, Tokens, Trajectory

State = Mapping[str, Any]


class Penalty(Component):
    """A term added to the objective's loss, subtracted from the reward, or both."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Expensive signals that it reads: in the loss those of the forward pass that trains, and columns; in the
        reward columns only.
        """
        return frozenset()

    @property
    def tags(self) -> frozenset[str]:
        """Tags in completions whose places its reward reads, as the fact `Spans` of each rollout."""
        return frozenset()

    @property
    def acts_in_loss(self) -> bool:
        """Whether it adds a term to the loss, so that a stage without rewards can have it."""
        return type(self).in_loss is not Penalty.in_loss

    @property
    def whole_groups(self) -> bool:
        """Whether its term in the loss is of a whole group, which must then be learned from together."""
        return False

    @property
    def whole_batch(self) -> bool:
        """Whether its term in the loss compares all sequences of an update, which are then in one forward pass."""
        return False

    def start(self) -> State:
        """State before the first step."""
        return {}

    def at(self, state: State) -> "Penalty":
        """The penalty with the settings of this state; by default unchanged."""
        return self

    def observe(self, state: State, batch: Batch) -> State:
        """The state after this batch, before it is learned from."""
        return state

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] term to add to each token's loss; None when it acts on the reward."""
        return None

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray | None:
        """[T] amount to add to each token's reward; None when it acts on the loss."""
        return None
