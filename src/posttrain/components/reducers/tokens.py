"""Mean over all tokens of the step: every token counts the same, long sequences count more.

Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.3.
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.types import FloatArray, IntArray


@frozen
class Tokens(Reducer):
    """One over the number of tokens."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i."""
        return np.full(len(length_N), 1.0 / max(length_N.sum(), 1), np.float32)
