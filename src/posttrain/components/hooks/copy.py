"""A role takes over the weights of another one: a reference that is renewed from the policy as it learns.

Source: the moving reference of iterative GRPO, Shao et al. 2024, arXiv:2402.03300, algorithm 1 (line 3).
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Seat, Upkeep, seat_of
from posttrain.components.hooks._weights import side_by_side


@frozen
class Copy(Upkeep):
    """One model becomes a copy of another."""

    source: str = "policy"
    """The role that is copied."""
    target: str = "reference"
    """The role whose weights are replaced."""
    every: PositiveInt = 100
    """Steps between two copies."""

    @property
    def roles(self) -> frozenset[str]:
        """Source and target."""
        return frozenset({self.source, self.target})

    @property
    def changed(self) -> frozenset[str]:
        """The target."""
        return frozenset({self.target})

    def __call__(self, step: int, seats: Mapping[str, Seat]) -> None:
        """Copy after each `every`-th step."""
        if step % self.every:
            return
        import torch

        source, target = seat_of(self.source, seats), seat_of(self.target, seats)
        with torch.no_grad():
            for theirs, ours in side_by_side(source, target):
                ours.copy_(theirs)
        target.model.version = source.model.version
