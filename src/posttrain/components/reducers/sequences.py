"""Mean over sequences of the mean over their tokens: every sequence counts the same.

Source: GRPO, Shao et al. 2024, arXiv:2402.03300, equation 3. A token of a long sequence counts less than one of a short
sequence, which favours long wrong answers (Liu et al. 2025, arXiv:2503.20783, section 3.1). A fixed `count` is that of
LOOP, arXiv:2502.01600: the size of a minibatch, even where filters left fewer rollouts, so that these do not count
more.
"""

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.types import FloatArray, IntArray


@frozen
class Sequences(Reducer):
    """One over the number of sequences that have tokens, and over the sequence's length."""

    count: PositiveInt | None = None
    """Divides the sum over sequences; None is the number of sequences of the update that have tokens."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i."""
        num_sequences = self.count or max(int(np.count_nonzero(length_N)), 1)
        return np.asarray(1.0 / (num_sequences * np.maximum(length_N, 1)), np.float32)
