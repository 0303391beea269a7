"""Copies one role's weights into another's, such as the policy's into its reference.

Source: the moving reference of iterative GRPO, Shao et al. 2024, arXiv:2402.03300, algorithm 1 (line 3).
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Hook, RoleState, state_of
from posttrain.components.hooks._weights import paired_parameters


@frozen
class Copy(Hook):
    """Copies the weights of one role into another."""

    source: str = "policy"
    """The role that is copied."""
    target: str = "reference"
    """The role whose weights are replaced."""
    every: PositiveInt = 100
    """Copy every N steps."""
    times: PositiveInt | None = None
    """Most copies, so that 1 copies after step `every` only; None is for all of the stage."""

    @property
    def roles(self) -> frozenset[str]:
        """Source and target."""
        return frozenset({self.source, self.target})

    @property
    def changed(self) -> frozenset[str]:
        """The target."""
        return frozenset({self.target})

    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Copy after every `every`-th step, up to `times` of them."""
        if step % self.every or (self.times is not None and step > self.times * self.every):
            return
        import torch

        source, target = state_of(self.source, states), state_of(self.target, states)
        with torch.no_grad():
            for theirs, ours in paired_parameters(source, target):
                ours.copy_(theirs)
        target.model.version = source.model.version
