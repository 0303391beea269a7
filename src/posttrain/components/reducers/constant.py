"""Sum over a sequence's tokens divided by a constant, averaged over sequences: weights do not depend on length.

Source: Dr. GRPO, Liu et al. 2025, arXiv:2503.20783, section 3.2, where the constant is the limit on
tokens per completion. Unlike the mean over all tokens, the scale does not follow the lengths of a batch. The plain sum
over a constant (``average=false``) is that of NFT, Chen et al. 2025, arXiv:2505.18116.
"""

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.types import FloatArray, IntArray


@frozen
class Constant(Reducer):
    """One over a constant, and over the number of sequences that have tokens."""

    length: PositiveFloat = 1024.0
    """The constant, in tokens; usually the most that a completion may have."""
    average: bool = True
    """Whether sums are averaged over sequences; otherwise they are summed, so that more sequences give a larger loss,
    of which `learner.clip_norm` then clips more."""

    def weights(self, length_N: IntArray, group_N: IntArray) -> FloatArray:
        """[N] weight of each token of sequence i."""
        num_sequences = max(int(np.count_nonzero(length_N)), 1) if self.average else 1
        return np.full(len(length_N), 1.0 / (num_sequences * self.length), np.float32)
