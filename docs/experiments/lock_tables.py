"""ArCHer against REINFORCE on a combination lock, with tables in place of models: episodes until it is opened.

    python docs/experiments/lock_tables.py --seeds 10

A lock of three turns with four symbols each, and a reward of 1 only if all are right. Policy, Q and V are tables over
the 21 states, two of each critic with a slow copy; both arms take 32 episodes a step and Adam. ArCHer makes the updates
of `stages/hierarchical`, 8 of the critic and 3 of the policy with 64 turns each. REINFORCE has the reward of the whole
episode for each turn, less the mean of the others of the step. The success of a policy is computed, not sampled; runs
go on to 2,000 episodes where the lock was opened before. ``episodes`` has success and regret of the policy then.
"""

import argparse
import json
from typing import Any

import numpy as np
from episodes import episode_row

from posttrain.components.environments.lock import Lock
from posttrain.statistics.intervals import mean

TURNS, SYMBOLS, EPISODES = 3, 4, 32
CRITIC, POLICY, BATCH = 8, 3, 64
GAMMA, TAU = 0.95, 0.1
RATES = (0.01, 0.03, 0.1, 0.3)
LIMIT, EARLY = 20_000, 2000
"""Episodes after which a run ends, and after which the success is measured."""
SOLVED = 0.9


class Adam:
    """Adam on one table."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self.rate, self.m, self.v, self.t = rate, np.zeros(shape), np.zeros(shape), 0

    def __call__(self, table: np.ndarray, gradient: np.ndarray) -> None:
        """Descend."""
        self.t += 1
        self.m += 0.1 * (gradient - self.m)
        self.v += 0.001 * (gradient**2 - self.v)
        table -= self.rate * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


STATES = sum(SYMBOLS**turn for turn in range(TURNS))
FIRST = [sum(SYMBOLS**before for before in range(turn)) for turn in range(TURNS + 1)]


def softmax(logits: np.ndarray) -> np.ndarray:
    """[S, A] probabilities."""
    p = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True))


def drawn(p_NA: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[N] one action of each row."""
    return np.asarray((rng.random((len(p_NA), 1)) > p_NA.cumsum(1)).sum(1).clip(0, SYMBOLS - 1))


def played(p_SA: np.ndarray, code: list[int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[E, T] states and actions of episodes, and [E] their rewards."""
    states, actions = np.zeros((EPISODES, TURNS), int), np.zeros((EPISODES, TURNS), int)
    place = np.zeros(EPISODES, int)
    for turn in range(TURNS):
        states[:, turn] = FIRST[turn] + place
        actions[:, turn] = drawn(p_SA[states[:, turn]], rng)
        place = place * SYMBOLS + actions[:, turn]
    return states, actions, (actions == np.array(code)).all(1).astype(float)


def success(p_SA: np.ndarray, code: list[int]) -> float:
    """Probability that the lock is opened."""
    place, found = 0, 1.0
    for turn, symbol in enumerate(code):
        found *= p_SA[FIRST[turn] + place, symbol]
        place = place * SYMBOLS + symbol
    return float(found)


def ascent(p_SA: np.ndarray, states: np.ndarray, actions: np.ndarray, advantage: np.ndarray, count: int) -> np.ndarray:
    """Gradient of the loss - mean of A log p in the logits."""
    gradient = np.zeros_like(p_SA)
    np.add.at(gradient, states, advantage[:, None] * p_SA[states])
    np.add.at(gradient, (states, actions), -advantage)
    return gradient / count


def episodes_until(arm: str, rate: float, seed: int) -> tuple[float, float]:
    """Episodes until the lock is opened nine times in ten, and the success after 2,000."""
    rng = np.random.default_rng([seed, int(1000 * rate)])
    code = ["abcd".index(letter) for letter in Lock(turns=TURNS, symbols=SYMBOLS, seed=seed).combination]
    logits = np.zeros((STATES, SYMBOLS))
    optimizer = Adam(logits.shape, rate)
    q, v = np.zeros((2, STATES, SYMBOLS)), np.zeros((2, STATES))
    slow_q, slow_v = q.copy(), v.copy()
    fit_q, fit_v = Adam(q.shape, 0.03), Adam(v.shape, 0.03)
    stored: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    until, early = 0.0, 0.0
    for step in range(LIMIT // EPISODES):
        p = softmax(logits)
        own = played(p, code, rng)
        stored.append(own)
        if arm == "reinforce":
            reward = own[2]
            advantage = np.repeat((reward - reward.mean()) * EPISODES / (EPISODES - 1), TURNS)
            optimizer(logits, ascent(p, own[0].ravel(), own[1].ravel(), advantage, EPISODES))
        else:
            states, actions, rewards = (np.concatenate([part[i] for part in stored]) for i in range(3))
            for update in range(CRITIC + POLICY):
                episode, turn = rng.integers(len(states), size=BATCH), rng.integers(TURNS, size=BATCH)
                s = states[episode, turn]
                fresh = drawn(softmax(logits)[s], rng)
                if update < CRITIC:
                    a, last = actions[episode, turn], turn == TURNS - 1
                    after = slow_v[:, states[episode, np.minimum(turn + 1, TURNS - 1)]]
                    target = np.where(last, rewards[episode], GAMMA * after)
                    slope_q, slope_v = np.zeros_like(q), np.zeros_like(v)
                    for k in range(2):
                        np.add.at(slope_q[k], (s, a), 2 * (q[k, s, a] - target[k]) / BATCH)
                        np.add.at(slope_v[k], s, 2 * (v[k, s] - slow_q[k, s, fresh]) / BATCH)
                    fit_q(q, slope_q)
                    fit_v(v, slope_v)
                    slow_q += TAU * (q - slow_q)
                    slow_v += TAU * (v - slow_v)
                else:
                    advantage = q[:, s, fresh].min(0) - v[:, s].min(0)
                    optimizer(logits, ascent(softmax(logits), s, fresh, advantage, BATCH))
        found, seen = success(softmax(logits), code), (step + 1) * EPISODES
        if found >= SOLVED and not until:
            until = float(seen)
        if seen <= EARLY:
            early = found
        if until and seen + EPISODES > EARLY:
            break
    return until or float(LIMIT), early


def cell(values: list[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:,.{digits}f} [{own.interval.low:,.{digits}f}, {own.interval.high:,.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    table: list[list[Any]] = []
    episodes: list[list[str]] = []
    for arm in ("reinforce", "archer"):
        for rate in RATES:
            rows = [episodes_until(arm, rate, seed) for seed in seeds]
            unsolved = sum(row[0] == LIMIT for row in rows)
            table.append(
                [arm, f"{rate:g}", cell([r[0] for r in rows], 0), str(unsolved), cell([r[1] for r in rows], 2)]
            )
            own = [{"success": found, "turns": float(TURNS), "regret": 1.0 - found} for _, found in rows]
            episodes.append(episode_row(f"{arm}, rate {rate:g}", own))
    columns = ["arm", "rate", "episodes", "not opened", "success after 2,000"]
    print(json.dumps({"columns": columns, "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
