"""Which mixture of domains scores best, from runs with other mixtures.

Source: MoDoMoDo, arXiv:2505.24871, section 3 and algorithms 1 to 4. M domains, R runs; a mixture is a point of the
simplex. Runs to begin with are `seeds`: each domain alone, all but one, and all alike. Proposals from them:

    alpha       S_i is the sum of the scores of the runs with domain i (those of one domain alone scaled); within the
                smallest and the largest, by two scores: C = alpha S_in + (1 - alpha) S_out
    coli        ridge regression of the score on which domains a run has, without intercept; each coefficient over its
                variance factor, and not below 0
    norm        weights proportional to 0.2 - 0.1 (score of the run without domain i, from 0 for the smallest to 1)
    quadratic   least squares of the score on all products of two weights, the best of several splits by held-out R^2;
                the candidate with the highest prediction, of samples of a Gaussian fitted to the runs' mixtures

On the simplex the products of two weights span constants and linear terms, so that the surface has M (M + 1) / 2
unknowns; with fewer runs it has no unique maximum.

Differs: equal scores make the smallest the largest (0/0): then nothing distinguishes the domains, and they are alike.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

RIDGE = 1e-3
SPLITS = 5
HELD_OUT = 0.2
CANDIDATES = 10_000


def seeds(domains: int) -> Reals:
    """[2M + 1, M] each domain alone, all but one, all alike; without repetitions."""
    one = np.eye(domains)
    rows = [*one, *((1.0 - one) / max(domains - 1, 1)), np.full(domains, 1.0 / domains)]
    return np.array(list(dict.fromkeys(tuple(row) for row in np.round(rows, 12).tolist())))


def alpha(mixture_RM: Reals, inside_R: Reals, outside_R: Reals, share: float, alone: float = 1.0) -> Reals:
    """[M] weights by the scores of the runs that have a domain; `alone` scales runs of a single one."""
    has_RM = (mixture_RM > 0).astype(np.float64)
    scale_R = np.where(has_RM.sum(1) == 1, alone, 1.0)
    inside_M, outside_M = (_spanned((has_RM * (scale_R * x_R)[:, None]).sum(0)) for x_R in (inside_R, outside_R))
    return _shares(share * inside_M + (1.0 - share) * outside_M)


def coli(mixture_RM: Reals, score_R: Reals) -> Reals:
    """[M] weights by ridge coefficients over their variance factors."""
    has_RM = (mixture_RM > 0).astype(np.float64)
    inverse_MM = np.linalg.inv(has_RM.T @ has_RM + RIDGE * np.eye(has_RM.shape[1]))
    return _shares(np.maximum(inverse_MM @ has_RM.T @ score_R / np.diag(inverse_MM), 0.0))


def norm(without_M: Reals) -> Reals:
    """[M] weights by the scores of the runs that leave a domain out: the lower without it, the more of it."""
    low, high = without_M.min(), without_M.max()
    spanned_M = (without_M - low) / (high - low) if high > low else np.zeros(len(without_M))
    return _shares(0.2 - 0.1 * spanned_M)


def needed(domains: int) -> int:
    """Runs below which the quadratic surface is not determined."""
    return domains * (domains + 1) // 2


def quadratic(mixture_RM: Reals, score_R: Reals, *, seed: int, top: int = 1) -> tuple[Reals, Reals, float]:
    """[K, M] the best candidates, [K] their predicted scores, and the R^2 of the fit on the runs that it left out.

    Raises `ValueError` for fewer runs than the surface has unknowns.
    """
    runs, domains = mixture_RM.shape
    if runs < needed(domains):
        raise ValueError(f"{runs} runs do not determine a surface with {needed(domains)} unknowns")
    rng, x_RF = np.random.default_rng(seed), products(mixture_RM)
    best = -np.inf
    fitted: Reals = np.zeros(x_RF.shape[1])
    for _ in range(SPLITS):
        order = rng.permutation(runs)
        left = order[: max(1, round(HELD_OUT * runs))]
        kept = order[len(left) :]
        coefficients: Reals = np.asarray(np.linalg.lstsq(x_RF[kept], score_R[kept], rcond=None)[0], np.float64)
        spread = float(((score_R[left] - score_R[kept].mean()) ** 2).sum())
        error = float(((score_R[left] - x_RF[left] @ coefficients) ** 2).sum())
        if 1.0 - error / max(spread, 1e-12) > best:
            best, fitted = 1.0 - error / max(spread, 1e-12), coefficients
    drawn = rng.multivariate_normal(mixture_RM.mean(0), np.cov(mixture_RM.T).reshape(domains, domains), CANDIDATES)
    drawn = np.maximum(drawn, 0.0)
    drawn = drawn[drawn.sum(1) > 0]
    candidate_KM = drawn / drawn.sum(1, keepdims=True)
    predicted_K = products(candidate_KM) @ fitted
    places = np.argsort(-predicted_K, kind="stable")[:top]
    return candidate_KM[places], predicted_K[places], best


def products(mixture_RM: Reals) -> Reals:
    """[R, M (M + 1) / 2] all products of two weights."""
    first, second = np.triu_indices(mixture_RM.shape[1])
    return np.asarray(mixture_RM[:, first] * mixture_RM[:, second])


def _spanned(values_M: Reals) -> Reals:
    """From 0 for the smallest to 1 for the largest; 0 where all are equal."""
    low, high = values_M.min(), values_M.max()
    return (values_M - low) / (high - low) if high > low else np.zeros(len(values_M))


def _shares(values_M: Reals) -> Reals:
    """The values over their sum; alike where it is 0."""
    total = values_M.sum()
    return values_M / total if total > 0 else np.full(len(values_M), 1.0 / len(values_M))


def as_rows(mixtures: Sequence[dict[str, float]], domains: Sequence[str]) -> Reals:
    """[R, M] mixtures by name as rows that add up to 1."""
    rows = np.array([[mixture.get(domain, 0.0) for domain in domains] for mixture in mixtures])
    return np.asarray(rows / rows.sum(1, keepdims=True))
