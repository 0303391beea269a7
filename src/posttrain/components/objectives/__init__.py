"""Objectives: surrogate losses of each token.

Contract: a loss for each token, to be minimised; finite at extreme ratios; zero advantage gives zero gradient; on
policy the gradient is that of REINFORCE; it solves a four-armed bandit. A member for which a law does not hold names
it in `exceptions`.
"""

from posttrain.component import Component
from posttrain.signals import Signal
from posttrain.types import PerToken, Tokens


class Objective(Component):
    """A surrogate whose gradient improves the policy."""

    @property
    def exceptions(self) -> frozenset[str]:
        """Laws of the family that do not hold for this member: ``zero_advantage``, ``reinforce``, ``bandit``."""
        return frozenset()

    @property
    def whole_groups(self) -> bool:
        """Whether the loss compares the sequences of a group, which must then be learned from together."""
        return False

    @property
    def uses_old(self) -> bool:
        """Whether the loss of demonstrated tokens reads their old log-probabilities.

        Where it does not, demonstrations beside rollouts take no pass of their own before the update.
        """
        return True

    @property
    def foresight(self) -> float:
        """Share of the model's own choice in the input embeddings of the tokens that are trained, in [0, 1].

        Above 0, a pass without gradient finds the choices, the most likely tokens; the loss is of a second pass.
        """
        return 0.0

    @property
    def needs(self) -> frozenset[Signal]:
        """Expensive signals that `Tokens` must carry: those of the forward pass that trains, which are differentiated,
        and columns, among them the old log-probabilities where those of the sampler do not suffice.
        """
        return frozenset()

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        raise NotImplementedError
