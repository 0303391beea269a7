"""A small network from the factors of a step to its reward, trained on the returns of whole episodes.

Two hidden layers with tanh, Adam, in float64 without torch: a state of plain numbers, the same on every machine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Weights = dict[str, Reals]
Form = Literal["sum", "mean", "rrd", "rrd_unbiased"]

WIDTH: Final = 64
RATE: Final = 3e-3
NAMES: Final = ("a", "a0", "b", "b0", "c", "c0")


def new_weights(factors: int, rng: np.random.Generator) -> Weights:
    """Weights of a decoder that starts near 0."""
    return {
        "a": rng.normal(size=(factors, WIDTH)) / np.sqrt(factors),
        "a0": np.zeros(WIDTH),
        "b": rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH),
        "b0": np.zeros(WIDTH),
        "c": rng.normal(size=WIDTH) * 0.1 / np.sqrt(WIDTH),
        "c0": np.zeros(1),
    }


def decoded(weights: Weights, x_NF: Reals) -> Reals:
    """[N] the reward of each step."""
    return _forward(weights, x_NF)[2]


def _forward(w: Weights, x_NF: Reals) -> tuple[Reals, Reals, Reals]:
    h_NW = np.tanh(x_NF @ w["a"] + w["a0"])
    g_NW = np.tanh(h_NW @ w["b"] + w["b0"])
    return h_NW, g_NW, g_NW @ w["c"] + w["c0"][0]


def gradient(w: Weights, x_NF: Reals, slope_N: Reals) -> Weights:
    """The gradient of a loss, by its slope in the reward of each step."""
    h_NW, g_NW, _ = _forward(w, x_NF)
    dg_NW = slope_N[:, None] * w["c"] * (1.0 - g_NW**2)
    dh_NW = dg_NW @ w["b"].T * (1.0 - h_NW**2)
    return {
        "a": x_NF.T @ dh_NW,
        "a0": dh_NW.sum(0),
        "b": h_NW.T @ dg_NW,
        "b0": dg_NW.sum(0),
        "c": g_NW.T @ slope_N,
        "c0": np.array([slope_N.sum()]),
    }


def loss_and_slopes(
    form: Form, rewards: Sequence[Reals], lengths: Sequence[int], returns: Reals
) -> tuple[float, list[Reals]]:
    """The loss over episodes, and its slope in each reward. `rewards` are those of all steps of an episode, or for the
    randomized forms those of some steps; `lengths` are the numbers of all steps.

        sum            mean of (R - sum_t r_t)^2
        mean           mean of (R / L - mean_t r_t)^2
        rrd            mean of (R / L - mean_k r_k)^2 over K drawn steps
        rrd_unbiased   the same less (1 - K / L) / K times the variance of the drawn rewards (never a negative weight)
    """
    total, slopes = 0.0, []
    count = len(rewards)
    for r_K, length, whole in zip(rewards, lengths, returns, strict=True):
        drawn = len(r_K)
        if form == "sum":
            gap = r_K.sum() - whole
            total, slope = total + gap**2, np.full(drawn, 2.0 * gap)
        else:
            gap = r_K.mean() - whole / length
            total, slope = total + gap**2, np.full(drawn, 2.0 * gap / drawn)
        if form == "rrd_unbiased" and drawn > 1:
            weight = max(1.0 - drawn / length, 0.0) / drawn
            total -= weight * r_K.var(ddof=1)
            slope = slope - weight * 2.0 * (r_K - r_K.mean()) / (drawn - 1)
        slopes.append(slope / count)
    return total / max(count, 1), slopes


class Trainer:
    """Weights and the moments of Adam, from and to JSON."""

    def __init__(self, weights: Weights, moments: Weights | None = None, steps: int = 0) -> None:
        """Without moments a new one."""
        self.weights, self.steps = weights, steps
        self.moments = moments or {f"{kind}{n}": np.zeros_like(weights[n]) for kind in "mv" for n in NAMES}

    @classmethod
    def of(cls, packed: Mapping[str, Any]) -> "Trainer":
        """From JSON."""
        weights = {n: np.array(packed["weights"][n], np.float64) for n in NAMES}
        return cls(weights, {n: np.array(x, np.float64) for n, x in packed["moments"].items()}, packed["steps"])

    def packed(self) -> dict[str, Any]:
        """As JSON."""
        weights = {n: x.tolist() for n, x in self.weights.items()}
        return {"weights": weights, "moments": {n: x.tolist() for n, x in self.moments.items()}, "steps": self.steps}

    def update(
        self, form: Form, episodes: Sequence[Reals], returns: Reals, draws: int, rng: np.random.Generator
    ) -> float:
        """One step of Adam on episodes, each [L, F]; returns the loss before it."""
        lengths = [len(x_LF) for x_LF in episodes]
        if form.startswith("rrd"):
            places = [rng.choice(n, size=draws, replace=draws > n) for n in lengths]
            episodes = [x_LF[place] for x_LF, place in zip(episodes, places, strict=True)]
        x_NF = np.concatenate(episodes)
        ends = np.cumsum([len(x) for x in episodes])[:-1]
        loss, slopes = loss_and_slopes(form, np.split(decoded(self.weights, x_NF), ends), lengths, returns)
        found = gradient(self.weights, x_NF, np.concatenate(slopes))
        self.steps += 1
        for n in NAMES:
            m, v = self.moments[f"m{n}"], self.moments[f"v{n}"]
            m += 0.1 * (found[n] - m)
            v += 0.001 * (found[n] ** 2 - v)
            unbiased = np.sqrt(v / (1.0 - 0.999**self.steps)) + 1e-8
            self.weights[n] = self.weights[n] - RATE * m / (1.0 - 0.9**self.steps) / unbiased
        return loss
