"""Focal ranking loss: pairs that are in the right order count less, the more certain the model is.

Source: Cai et al. 2024 (InternLM2), arXiv:2403.17297, section 4.3.1. With P = sigmoid(chosen score - rejected score):

    loss = -(1 - 2 max(0, P - 1/2))^gamma log P

Pairs in the wrong order have the loss of Bradley and Terry, and so does every pair where gamma is 0. The factor is
differentiated. With D the difference, 1 - 2 (P - 1/2) is 2 sigmoid(-D), which is how it is computed, so that it is
exact where P rounds to 1.

Differs: nothing known.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rankings import Ranking

if TYPE_CHECKING:
    import torch


@frozen
class Focal(Ranking):
    """The logistic loss of a difference of scores, damped for pairs in order."""

    gamma: NonNegativeFloat = 2.0
    """How much pairs in order are damped (2 in the paper); 0 damps nothing."""

    def __call__(self, gap_P: "torch.Tensor", numbers: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """[P] the loss of each pair."""
        from torch.nn.functional import logsigmoid

        # The logarithm of the factor, log(2 sigmoid(-D)), is log-sigmoid(-D) less its value at 0.
        ahead_P = gap_P.clamp(min=0.0)
        damped_P = logsigmoid(-ahead_P) - logsigmoid(gap_P.new_zeros(()))
        return -(self.gamma * damped_P).exp() * logsigmoid(gap_P)
