"""One reducer for sampled tokens, and another one for tokens of demonstrations: each part has its own normaliser.

Source: CHORD, Zhang et al. 2025, arXiv:2508.11408: the reinforcement loss is the mean over sampled tokens, the
imitation loss the mean over tokens of experts, so that neither dilutes the other.

Differs: the release takes the means of micro-batches and weighs them by their numbers of rows; here they are those of
the whole optimizer step, whatever its micro-batches are.
"""

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.types import FloatArray, IntArray


@frozen
class ByOrigin(Reducer):
    """Sampled tokens by one reducer, demonstrated ones by another."""

    sampled: Reducer
    """Weights of sampled tokens."""
    demonstrated: Reducer
    """Weights of tokens of demonstrations."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i, where all are sampled."""
        return self.sampled.weights(length_N, group_N)

    def by_origin(
        self, sampled_N: IntArray, demonstrated_N: IntArray, group_N: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """[N] weights of both, each from the tokens of its own origin."""
        return self.sampled.weights(sampled_N, group_N), self.demonstrated.weights(demonstrated_N, group_N)
