"""Experiments that are exact: a Gaussian posterior, gradients on tables and values of chains, by other means."""

import importlib.util
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards.robust import Robust

ROOT = Path(__file__).parents[2]


def experiment(name: str) -> ModuleType:
    """The module of an experiment, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/experiments/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_posterior_of_tree_pairs_is_that_of_the_precisions_and_of_scikit_learn() -> None:
    """Row 218: prior over prefixes, pairs with noise; the covariance by the inverse of the sum of both precisions."""
    trees = experiment("prefix_trees")
    rng = np.random.default_rng(0)
    spread = trees.SPREADS["late"]
    prior = np.array([spread[len(prefix) - 1] ** 2 for prefix in trees.NODES])
    for pairs in (trees.chain(rng, 12), trees.tree(rng, 28, 1)):
        rows = np.array([trees.PATHS[a] - trees.PATHS[b] for a, b in pairs])
        posterior = np.linalg.inv(np.diag(1 / prior) + rows.T @ rows / trees.NOISE**2)
        expected = trees.variance(posterior) / trees.variance(np.diag(prior))
        assert trees.left(pairs, spread) == pytest.approx(expected, rel=1e-9)
        process: Any = pytest.importorskip("sklearn.gaussian_process")
        kernels: Any = pytest.importorskip("sklearn.gaussian_process.kernels")
        # With weights w of prior variance 1 and rows scaled by its root, rewards are a process with a linear kernel.
        kernel = kernels.DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
        model = process.GaussianProcessRegressor(kernel=kernel, alpha=trees.NOISE**2, optimizer=None)
        model.fit(rows * prior**0.5, np.zeros(len(rows)))
        _, covariance = model.predict(trees.PATHS * prior**0.5, return_cov=True)
        size = len(covariance)
        mean = 2 * (size * np.trace(covariance) - covariance.sum()) / (size * (size - 1))
        assert trees.left(pairs, spread) * trees.variance(np.diag(prior)) == pytest.approx(mean, rel=1e-6)
    every = {tuple(sorted(pair)) for pair in trees.tree(rng, 48, 1)}
    assert [sum(trees.ancestor(*pair) == depth for pair in every) for depth in range(3)] == [16, 8, 4]


def test_the_worst_heads_gradient_is_exact() -> None:
    """Row 232: the step of the logits is the derivative of the expected reward less beta KL, by finite differences."""
    worst = experiment("worst_head")
    rng = np.random.default_rng(1)
    head_KA, log_std_KA = rng.normal(size=(3, 5)), np.log(rng.uniform(0.2, 0.8, (3, 5)))
    reward = worst.of(head_KA, log_std_KA, Robust(heads=3, alpha=0.4))
    surest = head_KA[log_std_KA.argmin(0), np.arange(5)]
    np.testing.assert_allclose(reward, 0.4 * surest + 0.6 * head_KA.min(0), atol=1e-6)
    beta, logits = 0.1, rng.normal(size=5)

    def value(x: np.ndarray) -> float:
        policy = worst.softmax(x)
        return float(policy @ (reward - beta * (np.log(policy) + np.log(5))))

    def after(x: np.ndarray) -> np.ndarray:
        """The logits of the policy after one step, up to a constant, less those before it."""
        policy = worst.softmax(x)
        gain = reward - beta * (np.log(policy + 1e-30) + np.log(5))
        return np.asarray(policy * (gain - policy @ gain))

    numeric = [(value(logits + h) - value(logits - h)) / 2e-6 for h in 1e-6 * np.eye(5)]
    np.testing.assert_allclose(after(logits), numeric, atol=1e-8)
    first, *_ = worst.followed(lambda _: reward, 5, beta, 1, 1.0)
    np.testing.assert_allclose(first, worst.softmax(after(np.zeros(5))), atol=1e-12)


def test_the_provers_values_are_those_of_all_paths() -> None:
    """Row 248: the chance of success and the expected gain of a table, by summing over every sequence of moves."""
    provers = experiment("provers")
    provers.MOVES, provers.LEVELS = 4, 2
    rng = np.random.default_rng(2)
    policy = rng.dirichlet(np.ones(3), (4, 2))
    found = provers.success(policy)[0, 0]
    total = 0.0
    for actions in product(range(3), repeat=4):
        level, chance = 0, 1.0
        for move, action in enumerate(actions):
            if level < 2:
                chance *= policy[move, level, action]
                level += action == 0
            else:
                chance /= 3  # the outcome is decided, whatever follows
        total += chance * (level == 2)
    assert found == pytest.approx(total, abs=1e-12)
    flat = np.full((4, 2, 3), 1 / 3)
    gain = provers.advantages("best of 1")
    np.testing.assert_allclose((flat * gain).sum(2), 0, atol=1e-12, err_msg="the base is its own mean")
    assert (provers.advantages("best of 4")[:, :, 0] >= 0).all()
