"""Reducers: weights that combine token losses into one loss.

A reducer gives a weight for every token, computed from the lengths of all sequences of an optimizer step. The loss is
then the weighted sum, over any micro-batches: gradient accumulation does not change the result.

A sequence is a row that is learned from. An episode whose history was replaced is several rows (the fact `Row`): it
weighs as many sequences in means over sequences, and its tokens in a mean over tokens.
"""

from posttrain.component import Component
from posttrain.types import FloatArray, IntArray


class Reducer(Component):
    """Weights of each sequence's tokens in an optimizer step."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i, from trained-token counts and group indices of the whole step."""
        raise NotImplementedError

    def by_origin(
        self, sampled_N: IntArray, demonstrated_N: IntArray, group_N: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """[N] weights of the sampled and of the demonstrated tokens of sequence i, from the counts of both.

        By default all tokens are alike.
        """
        weight_N = self.weights(sampled_N + demonstrated_N, group_N)
        return weight_N, weight_N
