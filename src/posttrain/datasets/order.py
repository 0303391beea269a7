"""The order in which rows of data are learned from."""

import numpy as np


def shuffled(count: int, batch: int, step: int, seed: int) -> list[int]:
    """Indices of a step's rows: consecutive entries of an endless sequence of seeded shuffles, one per epoch."""
    places = range(step * batch, (step + 1) * batch)
    orders = {
        epoch: np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(count)
        for epoch in {place // count for place in places}
    }
    return [int(orders[place // count][place % count]) for place in places]


def independent(count: int, batch: int, step: int, seed: int) -> list[int]:
    """Indices of a step's rows, each drawn by itself with the probability batch / count: there may be none (Poisson
    sampling).
    """
    draws = np.random.Generator(np.random.Philox(key=[seed, (1 << 60) + step])).random(count)
    return [int(i) for i in np.flatnonzero(draws < min(1.0, batch / count))]
