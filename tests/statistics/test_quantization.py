"""Codes of vectors, by hand."""

import numpy as np

from posttrain.statistics.quantization import kmeans, product_codes


def test_clusters_of_points_that_are_far_apart() -> None:
    points = np.array([[0.0], [0.1], [10.0], [10.1], [20.0]])
    for seed in range(5):
        code = kmeans(points, 3, np.random.default_rng(seed)).tolist()
        assert code[0] == code[1] and code[2] == code[3] and len({code[0], code[2], code[4]}) == 3


def test_a_part_has_its_own_code_and_equal_vectors_the_same() -> None:
    """The first two numbers agree in vectors 0 and 1, the last two in 1 and 2; vector 3 equals vector 0."""
    vectors = np.array([[0.0, 0, 5, 5], [0, 0, 9, 9], [7, 7, 9, 9], [0, 0, 5, 5]])
    codes = product_codes(vectors, 2, 2, seed=0)
    assert codes.shape == (4, 2)
    assert codes[0, 0] == codes[1, 0] != codes[2, 0] and codes[1, 1] == codes[2, 1] != codes[0, 1]
    assert codes[3].tolist() == codes[0].tolist()


def test_more_clusters_than_points() -> None:
    assert sorted(kmeans(np.array([[1.0], [2.0], [3.0]]), 8, np.random.default_rng(0)).tolist()) == [0, 1, 2]
