"""Roles exchange their models: after every so many steps each model goes on in the other's place.

Source: role exchange of CORY, Ma et al. 2024, arXiv:2410.06101, section 3.2 (every 5 steps in the released IMDB run).

A model takes along its optimizer state and number of updates, and what its role's advantage and penalties remember of
it (moments of its scores, the weight of its KL). Settings, such as a learning rate, stay with the role.

Differs: the released code builds both trainers anew at each exchange, which forgets all that; `reset` does the same,
except that a schedule of the learning rate goes on.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Seat, Upkeep, seat_of
from posttrain.components.hooks._weights import side_by_side


@frozen
class Swap(Upkeep):
    """Pairs of roles that exchange their models."""

    pairs: Annotated[Mapping[str, str], Field(min_length=1)]
    """One role and the other; the critics of two agents are a pair of their own."""
    every: PositiveInt = 5
    """Steps between two exchanges."""
    reset: bool = False
    """Whether optimizer state and memories are forgotten in the exchange."""

    @property
    def roles(self) -> frozenset[str]:
        """Both of every pair."""
        return frozenset(self.pairs) | frozenset(self.pairs.values())

    def __call__(self, step: int, seats: Mapping[str, Seat]) -> None:
        """Exchange after each `every`-th step."""
        if step % self.every == 0:
            for one, other in self.pairs.items():
                self._exchange(seat_of(one, seats), seat_of(other, seats))

    def _exchange(self, one: Seat, other: Seat) -> None:
        """Weights, learners' states and memories of two seats."""
        import torch

        versions = one.model.version, other.model.version
        with torch.no_grad():
            for ours, theirs in side_by_side(one, other):
                held = ours.clone()
                ours.copy_(theirs)
                theirs.copy_(held)
        if one.learner is not None and other.learner is not None:
            states = one.learner.state(), other.learner.state()
            one.learner.load_state(*states[1])
            other.learner.load_state(*states[0])
        other.model.version, one.model.version = versions
        memories = dict(one.memory), dict(other.memory)
        for seat, memory in ((one, memories[1]), (other, memories[0])):
            seat.memory.clear()
            seat.memory.update(deepcopy(dict(seat.fresh)) if self.reset else memory)
            if self.reset and seat.learner is not None:
                seat.learner.forget()
