"""All pairs of sequences of a group, for losses that compare them by their rewards."""

from typing import TYPE_CHECKING

from posttrain.types import Tokens

if TYPE_CHECKING:
    import torch


def every_two(tokens: Tokens) -> "torch.Tensor":
    """[P, 2] indices of every two sequences of a group, each pair once, also those of equal rewards."""
    same_NN = tokens.group_N[:, None] == tokens.group_N
    return same_NN.triu(diagonal=1).nonzero()


def difference(x_N: "torch.Tensor", pair_P2: "torch.Tensor") -> "torch.Tensor":
    """[P] the first of each pair minus the second."""
    return x_N[pair_P2[:, 0]] - x_N[pair_P2[:, 1]]
