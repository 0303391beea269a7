"""A small environment for flow policies: a point in the plane, two targets, and a reward for being near one of them.

It has Gymnasium's interface and can be used like any environment of Gymnasium; its id is ``reaching``.
"""

from typing import Any

import numpy as np

from posttrain.types import FloatArray

TARGETS = ((1.0, 0.0), (-1.0, 0.0))
"""Only the first is rewarded; demonstrations go to both."""
TURNS = 4
STRIDE = 0.5
"""Distance of the largest action, in each direction."""


class Box:
    """Bounds of observations or actions, as in Gymnasium's spaces."""

    def __init__(self, size: int, bound: float) -> None:
        self.shape = (size,)
        self.low, self.high = np.full(size, -bound, np.float32), np.full(size, bound, np.float32)


class Reaching:
    """An observation is the position and the share of remaining time; an action is a move."""

    observation_space = Box(3, 4.0)
    action_space = Box(2, 1.0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start near the middle."""
        self._place = np.random.default_rng(seed).normal(scale=0.1, size=2)
        self._left = TURNS
        return self._seen(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Move; the reward of a turn is exp(-2 distance^2) for the first target, over the number of turns."""
        self._place = self._place + STRIDE * np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        self._left -= 1
        distance = float(((self._place - np.array(TARGETS[0])) ** 2).sum())
        return self._seen(), float(np.exp(-2.0 * distance)) / TURNS, self._left == 0, False, {}

    def close(self) -> None:
        """No resources to free."""

    def _seen(self) -> FloatArray:
        return np.array([*self._place, self._left / TURNS], np.float32)


def demonstrated(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """A state and an action in it: a step towards one of the targets, each as likely, with some noise."""
    target = np.array(TARGETS[rng.integers(len(TARGETS))])
    place = rng.normal(scale=0.1, size=2) + rng.random() * target * rng.integers(2)
    move = np.clip((target - place) / STRIDE, -0.8, 0.8) + rng.normal(scale=0.1, size=2)
    left = rng.integers(1, TURNS + 1) / TURNS
    return np.array([*place, left], np.float32), np.clip(move, -1.0, 1.0).astype(np.float32)
