"""Rankings: losses of a pair by the difference of its scores, for models with a reward head.

Contract: a loss for each pair, to be minimised, that depends on no other pair and is finite at any finite difference.
A larger difference never raises it. The numbers of a pair that it reads are constants, without a gradient. P pairs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.component import Component

if TYPE_CHECKING:
    import torch


class Ranking(Component):
    """A loss that decreases as the chosen completion's score exceeds the rejected one's."""

    @property
    def reads(self) -> frozenset[str]:
        """Names of the numbers that each pair must have, such as ``margin``."""
        return frozenset()

    def __call__(self, gap_P: "torch.Tensor", numbers: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """[P] the loss of each pair, by the chosen score less the rejected one, and by the pair's numbers ([P])."""
        raise NotImplementedError
