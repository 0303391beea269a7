"""Which prover makes process advantages speed up reinforcement, at equal samples?

A chain of six levels and ten moves: one of three actions goes a level up, the others stay, and the outcome is 1 at the
top. The policy is tabular and starts flat, as the prover's model is; Q is exact. The updates are REINFORCE over 16
rollouts, with the mean outcome as the baseline, and alpha A of the prover as immediate credit of each move. Provers:
the base, the best of 4 and of 100 of its answers, and a perfect one. Summed into returns, A of the best of 4 is the
same gradient as the outcome's, times 1 + alpha. Reported is the number of rollouts until the exact success of the
policy is 90 %; at most 40,000.

    python docs/experiments/provers.py --seeds 5
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

LEVELS, MOVES, ACTIONS, BATCH, RATE, ALPHA, MOST = 6, 10, 3, 16, 0.5, 2.0, 40_000


def success(policy: np.ndarray) -> np.ndarray:
    """[H+1, L+1] chance of the outcome 1 from every state."""
    value = np.zeros((MOVES + 1, LEVELS + 1))
    value[:, LEVELS] = 1.0
    for move in range(MOVES - 1, -1, -1):
        for level in range(LEVELS):
            up = policy[move, level, 0]
            value[move, level] = up * value[move + 1, level + 1] + (1 - up) * value[move + 1, level]
    return value


def advantages(prover: str) -> np.ndarray:
    """[H, L, A] of each action, for the prover's value of states."""
    if prover == "perfect":
        left = MOVES - np.arange(MOVES + 1)[:, None]
        value = (left >= LEVELS - np.arange(LEVELS + 1)[None]).astype(float)
    else:
        base = success(np.full((MOVES, LEVELS, ACTIONS), 1 / ACTIONS))
        value = 1 - (1 - base) ** int(prover.removeprefix("best of "))
    found = np.zeros((MOVES, LEVELS, ACTIONS))
    for level in range(LEVELS):
        found[:, level, 0] = value[1:, level + 1] - value[:-1, level]
        found[:, level, 1:] = (value[1:, level] - value[:-1, level])[:, None]
    return found


def rollouts(prover: str, seed: int, *, summed: bool = False, scale: float = 1.0) -> float:
    """Number of rollouts until the policy succeeds in 90 %."""
    rng = np.random.default_rng(seed)
    logits = np.zeros((MOVES, LEVELS, ACTIONS))
    gain = ALPHA * advantages(prover) if prover else np.zeros_like(logits)
    for used in range(0, MOST, BATCH):
        powers = np.exp(logits - logits.max(2, keepdims=True))
        policy = powers / powers.sum(2, keepdims=True)
        if success(policy)[0, 0] >= 0.9:
            return float(used)
        level, visits, rewards = np.zeros(BATCH, int), [], []
        for move in range(MOVES):
            here = np.minimum(level, LEVELS - 1)
            chance = policy[move, here]
            action = (chance.cumsum(1) < rng.random((BATCH, 1))).sum(1).clip(max=ACTIONS - 1)
            alive = level < LEVELS
            visits.append((here, action, chance, alive))
            rewards.append(np.where(alive, gain[move, here, action], 0.0))
            level = level + (alive & (action == 0))
        outcome = (level == LEVELS).astype(float)
        step = np.array(rewards)
        credit = step[::-1].cumsum(0)[::-1] if summed else step
        update = np.zeros_like(logits)
        for move, (here, action, chance, alive) in enumerate(visits):
            weight = np.where(alive, scale * (outcome - outcome.mean()) + credit[move], 0.0) / BATCH
            np.add.at(update, (move, here), weight[:, None] * (np.eye(ACTIONS)[action] - chance))
        logits += RATE * update
    return float(MOST)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    arms = {
        "outcome": {"prover": ""},
        "outcome, times 1 + alpha": {"prover": "", "scale": 1 + ALPHA},
        "base": {"prover": "best of 1"},
        "best of 4": {"prover": "best of 4"},
        "best of 4, summed into returns": {"prover": "best of 4", "summed": True},
        "best of 100": {"prover": "best of 100"},
        "perfect": {"prover": "perfect"},
    }
    table = []
    for name, settings in arms.items():
        found = mean(np.array([rollouts(seed=seed, **settings) for seed in seeds]))  # type: ignore[arg-type]
        table.append([name, f"{found.value:,.0f} [{found.interval.low:,.0f}, {found.interval.high:,.0f}]"])
    print(json.dumps({"columns": ["prover", "rollouts to 90 % success"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
