"""Mean over groups of the mean over their sequences of the mean over their tokens: groups have equal weights.

Source: the objective of GRPO as written, an expectation over questions of means over their answers and tokens, Shao
et al. 2024, arXiv:2402.03300, equation 3. Where all groups are of one size it is the mean over sequences.
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.types import FloatArray, IntArray


@frozen
class Groups(Reducer):
    """One over the number of groups, over the number of sequences of the group, and over the sequence's length.

    Groups and sequences without tokens are not counted.
    """

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i."""
        size_G = np.bincount(group_N, weights=length_N > 0)
        num_groups = max(int(np.count_nonzero(size_G)), 1)
        return np.asarray(1.0 / (num_groups * np.maximum(size_G, 1)[group_N] * np.maximum(length_N, 1)), np.float32)
