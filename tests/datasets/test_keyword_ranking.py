"""BM25 by hand."""

import math

import pytest

from posttrain.datasets.keyword_ranking import Ranking


def test_scores_by_hand() -> None:
    """Two documents of 2 and 4 words, mean 3; ``a`` is in one of two: idf log(1 + 1.5 / 1.5) = log 2."""
    ranking = Ranking([["a", "b"], ["b", "b", "c", "c"]])
    [first, second] = ranking.scores(["a", "z"])
    assert first == pytest.approx(math.log(2) * 1.9 / (1 + 0.9 * (0.6 + 0.4 * 2 / 3))) and second == 0.0
    both = math.log(1 + 0.5 / 2.5)
    [one, two] = ranking.scores(["b"])
    assert one == pytest.approx(both * 1.9 / (1 + 0.9 * (0.6 + 0.4 * 2 / 3)))
    assert two == pytest.approx(both * 2 * 1.9 / (2 + 0.9 * (0.6 + 0.4 * 4 / 3)))


def test_equal_scores_keep_the_order() -> None:
    assert Ranking([["a"], ["b"], ["a"], ["c"]]).ranked(["a"]) == [0, 2, 1, 3]
