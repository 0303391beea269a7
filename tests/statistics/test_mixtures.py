"""Proposals of mixtures, on numbers worked out by hand, and a surface that is known."""

import numpy as np
import pytest

from posttrain.statistics import mixtures


def test_the_runs_to_begin_with() -> None:
    rows = mixtures.seeds(3)
    assert rows.shape == (7, 3) and np.allclose(rows.sum(1), 1.0)
    assert rows[:3].tolist() == np.eye(3).tolist() and rows[3].tolist() == [0.0, 0.5, 0.5]
    assert len(mixtures.seeds(2)) == 3, "with two domains all but one is one alone"


def test_norm_gives_the_domain_that_is_missed_most_twice_the_weight() -> None:
    assert mixtures.norm(np.array([0.4, 0.6, 0.5])) == pytest.approx([0.2 / 0.45, 0.1 / 0.45, 0.15 / 0.45])
    assert mixtures.norm(np.array([0.5, 0.5])) == pytest.approx([0.5, 0.5]), "nothing distinguishes them"


def test_alpha_sums_the_scores_of_the_runs_with_a_domain() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    outside, inside = np.array([0.2, 0.4, 0.6, 0.0]), np.array([1.0, 1.0, 1.0, 1.0])
    # outside sums: .8, 1.0, 0: spanned .8, 1, 0; inside 2, 3, 1: spanned .5, 1, 0
    assert mixtures.alpha(rows, inside, outside, 0.0) == pytest.approx([0.8 / 1.8, 1 / 1.8, 0.0])
    assert mixtures.alpha(rows, inside, outside, 1.0) == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert mixtures.alpha(rows, inside, outside, 0.5) == pytest.approx([0.65 / 1.65, 1 / 1.65, 0.0])
    # runs of one domain alone at half: .1 + .6 = .7 and .2 + .6 = .8
    assert mixtures.alpha(rows, inside, outside, 0.0, alone=0.5) == pytest.approx([0.7 / 1.5, 0.8 / 1.5, 0.0])
    assert mixtures.alpha(rows, 0 * inside, 0 * outside, 0.5) == pytest.approx([1 / 3] * 3)


def test_coli_is_ridge_over_variance_factors() -> None:
    """Orthogonal runs: coefficients are the scores, and all factors are equal. A negative one gets nothing."""
    assert mixtures.coli(np.eye(2), np.array([0.3, 0.1])) == pytest.approx([0.75, 0.25], abs=1e-3)
    assert mixtures.coli(np.eye(2), np.array([0.3, -0.1])) == pytest.approx([1.0, 0.0], abs=1e-3)


def test_the_surface_is_recovered_from_twice_the_least_number_of_runs() -> None:
    rng, best = np.random.default_rng(0), np.array([0.2, 0.5, 0.3])
    rows = rng.dirichlet(np.ones(3), 12)
    scores = 1.0 - ((rows - best) ** 2).sum(1)
    top, predicted, fit = mixtures.quadratic(rows, scores, seed=1, top=2)
    assert top.shape == (2, 3) and np.linalg.norm(top[0] - best) < 0.02 and fit > 0.999
    assert predicted[0] >= predicted[1] and predicted[0] == pytest.approx(1.0, abs=1e-3)


def test_too_few_runs_are_refused() -> None:
    assert [mixtures.needed(m) for m in (2, 3, 5)] == [3, 6, 15]
    with pytest.raises(ValueError, match="5 runs do not determine a surface with 6 unknowns"):
        mixtures.quadratic(np.full((5, 3), 1 / 3), np.ones(5), seed=0)
