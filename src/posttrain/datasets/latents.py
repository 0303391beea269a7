"""Latent steps as tokens: the meaning of the vector of each token that a model with a latent head writes.

The first number of a token's vector is its kind, the others are an input embedding over the model's scale:

    TEXT      a token of text; its vector is 0
    STEP      a latent step: the model reads the vector, and the token's id is the likeliest token, or a label
    CLOSING   the token that ends the steps; it is read as text, and its vector is only a target
"""

from typing import Final

import numpy as np

from posttrain.types import FloatArray, IntArray, Trajectory

TEXT: Final = 0
STEP: Final = 1
CLOSING: Final = 2


def steps_in(trajectory: Trajectory) -> int:
    """Latent steps of a rollout."""
    vectors_LD = trajectory.vectors
    return 0 if vectors_LD is None else int(np.count_nonzero(vectors_LD[:, 0] == STEP))


def merged(embedding_LD: FloatArray, speed: int, *, root: bool) -> tuple[FloatArray, IntArray]:
    """[C, D] the embeddings of chunks of `speed` tokens, of which the last may have fewer, and [C] their tokens.

    The sum is over the root of the number of tokens, plus 1e-5, or over the number itself.
    """
    starts_C = np.arange(0, len(embedding_LD), speed)
    count_C = np.diff(starts_C, append=len(embedding_LD))
    divisor_C = np.sqrt(count_C) + 1e-5 if root else count_C
    sum_CD = np.add.reduceat(np.asarray(embedding_LD, np.float64), starts_C, axis=0)
    return (sum_CD / divisor_C[:, None]).astype(np.float32), count_C.astype(np.int64)
