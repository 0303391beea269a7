"""Swaps the models of two roles every N steps.

Source: role exchange of CORY, Ma et al. 2024, arXiv:2410.06101, section 3.2 (every 5 steps in the released IMDB run).

A model keeps its optimizer state, its number of updates, and the state of its role's advantage and penalties
(moments of its scores, the weight of its KL). Settings, such as a learning rate, stay with the role.

Differs: the released code builds both trainers anew at each swap, which drops all that. `reset` does the same, except
that a schedule of the learning rate continues.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Hook, RoleState, state_of
from posttrain.components.hooks._weights import paired_parameters


@frozen
class Swap(Hook):
    """Swaps the models of pairs of roles."""

    pairs: Annotated[Mapping[str, str], Field(min_length=1)]
    """Roles that are swapped; the critics of two agents are a separate pair."""
    every: PositiveInt = 5
    """Swap every N steps."""
    reset: bool = False
    """Whether a swap resets the optimizers and the state of advantages and penalties."""

    @property
    def roles(self) -> frozenset[str]:
        """Both of every pair."""
        return frozenset(self.pairs) | frozenset(self.pairs.values())

    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Swap after every `every`-th step."""
        if step % self.every == 0:
            for one, other in self.pairs.items():
                self._swap(state_of(one, states), state_of(other, states))

    def _swap(self, one: RoleState, other: RoleState) -> None:
        """Swap weights, states of the learners, and states of the components of two roles."""
        import torch

        versions = one.model.version, other.model.version
        with torch.no_grad():
            for ours, theirs in paired_parameters(one, other):
                held = ours.clone()
                ours.copy_(theirs)
                theirs.copy_(held)
        if one.learner is not None and other.learner is not None:
            learners = one.learner.state(), other.learner.state()
            one.learner.load_state(*learners[1])
            other.learner.load_state(*learners[0])
        other.model.version, one.model.version = versions
        states = dict(one.state), dict(other.state)
        for role, state in ((one, states[1]), (other, states[0])):
            role.state.clear()
            role.state.update(deepcopy(dict(role.initial)) if self.reset else state)
            if self.reset and role.learner is not None:
                role.learner.reset_optimizer()
