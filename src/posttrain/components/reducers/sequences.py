"""Mean over sequences of the mean over their tokens: every sequence counts the same.

Source: GRPO, Shao et al. 2024, arXiv:2402.03300, equation 3. A token of a long sequence counts less than one of a short
sequence, which favours long wrong answers (Liu et al. 2025, arXiv:2503.20783, section 3.1).
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.types import FloatArray, IntArray


@frozen
class Sequences(Reducer):
    """One over the number of sequences that have tokens, and over the sequence's length."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i."""
        num_sequences = max(int(np.count_nonzero(length_N)), 1)
        return np.asarray(1.0 / (num_sequences * np.maximum(length_N, 1)), np.float32)
