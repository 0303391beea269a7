"""Credit along a chain of two agents (MARFT): one sees a digit and writes a hint, the other sees the hint and guesses.

Agents and critic are tables. The reward of a right guess is the guesser's. Compared are the chain of `chain_gae`, the
same reward for both with a baseline each, and training of the guesser alone. With four tries, and an end at the first
right guess, the released masks, which also cut the chain between the agents of an episode's first step, are compared
with those of `chain_gae`. A step has 64 episodes, one after the other, and moves the logits by the mean advantage; in
the first ten steps only the values are learnt. ``episodes`` has success, turns and regret after the last step.

    python docs/experiments/agent_chain.py
"""

import argparse
import json
from dataclasses import dataclass, field

import numpy as np
from episodes import episode_row

from posttrain.components.advantages.chain_gae import ChainGAE
from posttrain.signals import OLD_VALUE
from posttrain.statistics.intervals import mean
from posttrain.types import Batch, Group, Segment, Task, Trajectory

DIGITS, EPISODES, WARM_UP, RATE, VALUE_RATE = 4, 64, 10, 8.0, 0.1
TASK = Task(key="digit", prompt="")
Key = tuple[str, int, int]
"""Agent, what it sees, and the try."""


@dataclass
class Tables:
    """Logits and values of both agents by state."""

    rng: np.random.Generator
    logits: dict[Key, np.ndarray] = field(default_factory=dict)
    values: dict[Key, float] = field(default_factory=dict)

    def chances(self, key: Key) -> np.ndarray:
        """[digits] probabilities."""
        logits = self.logits.setdefault(key, np.zeros(DIGITS))
        powers: np.ndarray = np.exp(logits - logits.max())
        powers /= powers.sum()
        return powers

    def act(self, key: Key) -> int:
        """Draw a digit."""
        return min(int(np.searchsorted(self.chances(key).cumsum(), self.rng.random())), DIGITS - 1)


def episode(tables: Tables, horizon: int) -> tuple[list[tuple[Key, int]], list[float]]:
    """States with actions, and rewards, over the turns of both agents."""
    digit, steps, rewards = int(tables.rng.integers(DIGITS)), [], []
    for number in range(horizon):
        first: Key = ("policy", digit, number)
        hint = tables.act(first)
        second: Key = ("actor", hint, number)
        guess = tables.act(second)
        steps += [(first, hint), (second, guess)]
        rewards += [0.0, float(guess == digit)]
        if guess == digit:
            break
    return steps, rewards


def chained(tables: Tables, played: list[tuple[list[tuple[Key, int]], list[float]]]) -> list[np.ndarray]:
    """[turns] advantages of each episode by `chain_gae`."""
    groups, rewards, values = [], [], []
    for steps, own in played:
        segments = [Segment(actor="prompt", token_ids=np.zeros(1, np.int64))]
        segments += [
            Segment(actor=key[0], token_ids=np.array([action]), trained=True, turn=turn)
            for turn, (key, action) in enumerate(steps)
        ]
        groups.append(Group(trajectories=(Trajectory(task=TASK, segments=tuple(segments), stop_reason="stop"),)))
        rewards.append(np.array(own, np.float32))
        values.append(np.array([tables.values.get(key, 0.0) for key, _ in steps], np.float32))
    batch = Batch(groups=tuple(groups), token_rewards=tuple(rewards), signals={OLD_VALUE: tuple(values)})
    return [a_T.astype(np.float64) for a_T in ChainGAE()({}, batch)[1].advantages]


def released(tables: Tables, played: list[tuple[list[tuple[Key, int]], list[float]]]) -> list[np.ndarray]:
    """The same with the released masks: in the first step of an episode the chain ends after the first agent."""
    found = []
    for steps, own in played:
        value = [tables.values.get(key, 0.0) for key, _ in steps] + [0.0]
        advantage, following = np.zeros(len(steps)), 0.0
        for turn in reversed(range(len(steps))):
            on = 0.0 if turn == 0 else 1.0
            delta = own[turn] + 0.99 * on * value[turn + 1] - value[turn]
            following = advantage[turn] = delta + 0.99 * 0.95 * on * following
        found.append(advantage)
    return normalized(found)


def shared(tables: Tables, played: list[tuple[list[tuple[Key, int]], list[float]]]) -> list[np.ndarray]:
    """The final reward for both, minus the value."""
    return normalized([np.array([own[-1] - tables.values.get(key, 0.0) for key, _ in steps]) for steps, own in played])


def normalized(parts: list[np.ndarray]) -> list[np.ndarray]:
    """As in `chain_gae`."""
    flat = np.concatenate(parts)
    counted = flat[flat != 0.0]
    return [(part - counted.mean()) / (counted.std() + 1e-8) for part in parts] if len(counted) else parts


ARMS = {
    "chain": (chained, ("policy", "actor"), 1),
    "same reward for both": (shared, ("policy", "actor"), 1),
    "guesser alone": (chained, ("actor",), 1),
    "chain, four tries": (chained, ("policy", "actor"), 4),
    "released masks, four tries": (released, ("policy", "actor"), 4),
}


def learnt(arm: str, seed: int, steps: int) -> list[float]:
    """Success of the first try, and of all tries, after each quarter of the steps, and turns of both agents."""
    credit, trained, horizon = ARMS[arm]
    tables, found = Tables(np.random.default_rng(seed)), []
    for step in range(steps):
        played = [episode(tables, horizon) for _ in range(EPISODES)]
        moves: dict[Key, np.ndarray] = {}
        count = sum(len(own) for own, _ in played)
        for (own, rewards), advantage_T in zip(played, credit(tables, played), strict=True):
            left = np.cumsum(np.array(rewards)[::-1])[::-1]
            for (key, action), advantage, target in zip(own, advantage_T, left, strict=True):
                if key[0] in trained:
                    moves[key] = moves.get(key, 0.0) + advantage * (np.eye(DIGITS)[action] - tables.chances(key))
                tables.values[key] = tables.values.get(key, 0.0) + VALUE_RATE * (target - tables.values.get(key, 0.0))
        for key, move in moves.items() if step >= WARM_UP else ():
            tables.logits[key] = tables.logits[key] + RATE * move / count
        if (step + 1) % (steps // 4) == 0:
            new = [episode(tables, horizon)[1] for _ in range(500)]
            found.append(float(np.mean([own[1] for own in new])))
    new = [episode(tables, horizon)[1] for _ in range(1000)]
    return [*found, float(np.mean([own[-1] for own in new])), float(np.mean([len(own) for own in new]))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    table, episodes = [], []
    for arm in ARMS:
        rows = [learnt(arm, seed, given.steps) for seed in range(given.seeds)]
        cells = [mean(np.array([row[place] for row in rows])) for place in range(5)]
        own = [{"success": row[-2], "turns": row[-1], "regret": 1.0 - row[-2]} for row in rows]
        episodes.append(episode_row(arm, own))
        table.append([arm, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
    quarters = [f"first try, step {given.steps * i // 4}" for i in range(1, 5)]
    print(json.dumps({"columns": ["credit", *quarters, "any try"], "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
