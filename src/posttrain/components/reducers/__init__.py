"""Per-token losses to one number.

A reducer is a weight for every token, worked out from the lengths of all sequences of an optimizer step. The loss is
then the weighted sum, whatever micro-batches it is summed over: accumulation cannot change the result.
"""

from posttrain.component import Component
from posttrain.types import FloatArray, IntArray


class Reducer(Component):
    """How much each sequence's tokens count in an optimizer step."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i, from trained-token counts and group indices of the whole step."""
        raise NotImplementedError
