"""Signals of demonstrations: common subsequences, embeddings by hand, and what they need."""

import itertools
import random

import numpy as np
import pytest

from posttrain.stages.rl.shown import common_tokens, pooled


def longest(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Length of the longest common subsequence, by trying all of them."""
    for size in range(min(len(a), len(b)), 0, -1):
        if set(itertools.combinations(a, size)) & set(itertools.combinations(b, size)):
            return size
    return 0


def test_the_longest_common_subsequence_is_found() -> None:
    draw = random.Random(0)
    for _ in range(100):
        a, b = (tuple(draw.randrange(3) for _ in range(draw.randrange(7))) for _ in range(2))
        in_a, in_b = common_tokens(np.array(a, np.int64), np.array(b, np.int64))
        assert np.array(a)[in_a].tolist() == np.array(b)[in_b].tolist()
        assert in_a.sum() == longest(a, b)


def test_a_mean_weighted_by_the_softmax_of_scores() -> None:
    rows = np.array([[4.0, 0.0], [0.0, 4.0], [9.0, 9.0]], np.float32)
    scores = np.array([np.log(3.0), 0.0, 50.0], np.float32)
    kept = np.array([True, True, False])
    assert pooled(rows, scores, kept).tolist() == pytest.approx([3.0, 1.0])
    assert np.isnan(pooled(rows, scores, ~kept & kept)).all()
