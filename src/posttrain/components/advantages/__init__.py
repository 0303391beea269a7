"""Advantages: credit per token from the rewards of a batch.

Contract: finite on constant rewards and on groups of one; equivariant under a permutation of the trajectories; the
state is JSON and survives saving exactly. Arithmetic is in float64, results in float32.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from posttrain.component import Component
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, Group

State = Mapping[str, Any]


class Advantage(Component):
    """Turns the token rewards of a batch into one advantage per trained token."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that must be in the batch; all are columns: a critic's values, log-probabilities or entropies of the
        model that learns as it was before the updates, or of another role's.
        """
        return frozenset()

    @property
    def tags(self) -> frozenset[str]:
        """Tags in completions whose token ranges it reads, as the fact `Spans` of each rollout."""
        return frozenset()

    @property
    def is_relative(self) -> bool:
        """Whether rollouts are compared within their group only, so that in a group of one the advantage is 0."""
        return False

    @property
    def chooses(self) -> bool:
        """Whether it leaves out some rollouts, so that a good one may have no credit."""
        return False

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """What it makes of token rewards: their ``sum`` over the rollout only, undiscounted ``returns`` from each token
        to the end, or other functions of the rewards of ``tokens``.
        """
        return "sum"

    @property
    def credits_spans(self) -> bool:
        """Whether it credits the rewards of spans (`SpanRewards`) by itself, whatever it `reads` of the others."""
        return False

    def start(self) -> State:
        """State before the first step."""
        return {}

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it samples from before the first step."""
        return frozenset()

    @property
    def prepares(self) -> bool:
        """Whether `prepare` is called before the first step."""
        return False

    async def prepare(self, state: State, groups: Sequence[Group], samplers: Mapping[str, Any]) -> State:
        """The state before the first step, from a few scored rollouts and the models of the recipe."""
        return state

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Return the new state and the credit of every trained token."""
        raise NotImplementedError
