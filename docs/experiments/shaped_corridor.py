"""A corridor whose heuristic points the wrong way in half of its cells: sum, potential, and learned weights.

Sheet of row 188 (BARFI, arXiv:2310.19007). Ten cells; an episode begins at the first and has 30 steps, left or right,
of which one in ten slips. The primary reward is 1 at the last cell, which ends the episode. The auxiliary reward of
choosing right is 0.3 in cells where the heuristic is correct and -0.3 where it is not, which half of the cells are,
drawn by the seed; of choosing left it is the opposite. The policy is a table of a softmax for each cell, updated 600
times by REINFORCE with the mean return of 32 episodes as its baseline, rate 0.3, decay 0.001. The rows: the primary
reward alone, the sum of both, and the heuristic as differences of a potential, so that a loop has none. Learned weights
of both rewards move every 20 updates by 0.15, by the sign of finite differences (0.3) of the primary return after 20
updates from the same policy with the same draws. Reported is the share of 2,000 episodes that reach the last cell, over
seeds with a 95 % interval, and the last weights.

    python docs/experiments/shaped_corridor.py --seeds 5
"""

import argparse
import json
from typing import Any

import numpy as np

from posttrain.statistics.intervals import mean

CELLS, STEPS, EPISODES, UPDATES, INNER = 10, 30, 32, 600, 20
RATE, DECAY, SLIP, BONUS, SHIFT, STEP = 0.3, 0.001, 0.1, 0.3, 0.3, 0.15
Array = np.ndarray[Any, np.dtype[Any]]


def episodes(theta: Array, signs: Array, rng: np.random.Generator, count: int) -> dict[str, Array]:
    """Cells, actions, both rewards, and which steps were made, [count, STEPS]."""
    at, live = np.zeros(count, np.int64), np.ones(count, bool)
    right_p = 1.0 / (1.0 + np.exp(theta[:, 0] - theta[:, 1]))
    found: dict[str, list[Array]] = {name: [] for name in ("cell", "right", "primary", "bonus", "live")}
    for _ in range(STEPS):
        draw, slip = rng.random(count), rng.random(count) < SLIP
        right = draw < right_p[at]
        after = np.clip(at + np.where(right ^ slip, 1, -1), 0, CELLS - 1)
        moved = after - at
        there = after == CELLS - 1
        rows = (at, right, (there & live) * 1.0, live * moved * signs[np.minimum(at, after)] * BONUS, live.copy())
        for name, own in zip(found, rows, strict=True):
            found[name].append(own)
        live &= ~there
        at = np.where(live, after, at)
    return {name: np.stack(own, 1) for name, own in found.items()}


def updated(theta: Array, signs: Array, weights: Array, rng: np.random.Generator, kind: str) -> Array:
    """The table after one update."""
    drawn = episodes(theta, signs, rng, EPISODES)
    bonus = drawn["bonus"]
    if kind == "sum":
        bonus = np.where(drawn["right"], 1.0, -1.0) * np.where(drawn["live"], signs[drawn["cell"]], 0.0) * BONUS
    total = weights[0] * drawn["primary"] + weights[1] * bonus
    after = total[:, ::-1].cumsum(1)[:, ::-1]
    gain = (after - after.mean(0)) * drawn["live"]
    p = np.exp(theta) / np.exp(theta).sum(1, keepdims=True)
    slope = np.zeros_like(theta)
    for action in (0, 1):
        own = (drawn["right"] == action) - p[drawn["cell"], action]
        np.add.at(slope[:, action], drawn["cell"].ravel(), (own * gain).ravel())
    moved: Array = theta + RATE * slope / EPISODES - DECAY * theta
    return moved


def run(name: str, seed: int) -> list[float]:
    """Share of episodes that reach the last cell, and both weights at the end."""
    rng = np.random.default_rng([seed, 188])
    signs = np.where(rng.permutation(CELLS) < CELLS // 2, -1.0, 1.0)
    theta = np.zeros((CELLS, 2))
    start = {"primary alone": (1.0, 0.0), "learned from the primary": (1.0, 0.0)}
    weights = np.array(start.get(name, (1.0, 1.0)))
    kind = "potential" if name == "potential" else "sum"
    for turn in range(UPDATES // INNER):
        if name.startswith("learned"):
            slopes = np.zeros(2)
            for place in range(2):
                for sign in (1.0, -1.0):
                    tried, own = theta, np.random.default_rng([seed, turn, 1])
                    for _ in range(INNER):
                        tried = updated(tried, signs, weights + sign * SHIFT * np.eye(2)[place], own, kind)
                    slopes[place] += sign * episodes(tried, signs, own, 256)["primary"].sum() / 256
            weights = weights + STEP * np.sign(slopes)
        for _ in range(INNER):
            theta = updated(theta, signs, weights, rng, kind)
    return [100 * float(episodes(theta, signs, rng, 2000)["primary"].sum() / 2000), *weights.tolist()]


NAMES = ("primary alone", "sum", "potential", "learned from the primary", "learned from the sum")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    table = []
    for name in NAMES:
        found = np.array([run(name, seed) for seed in range(given.seeds)])
        cells = [mean(own) for own in found.T]
        table.append([name, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
        print(json.dumps([name, found[:, 0].tolist()]), flush=True)
    columns = ["reward", "episodes that reach the end, %", "weight of the primary", "weight of the heuristic"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
