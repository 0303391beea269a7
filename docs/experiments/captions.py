"""Captioned rooms explored by tables, rewarded for captions that a judge has called helpful (ONI).

    python docs/experiments/captions.py --seeds 5

Sheet of row 208 (arXiv:2410.23022). A table of action probabilities learns in `environments/captioned` from 16 episodes
of 24 turns a step, by the environment's reward (10 at the exit) and by `rewards/captions`, with 10 % wrong labels; its
baseline is a table of values (GAE). Reported over the last 20 of 200 steps are the share of episodes at the exit and
how often the most frequent rewarded caption occurs in an episode; and the first step at whose end half of the last 160
episodes were at the exit, the captions that were seen, and the labels that were requested.
"""

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from random import Random
from typing import Any

import numpy as np

from posttrain.components.environments.captioned import ACTIONS, HELPFUL, Captioned
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.captions import Captions
from posttrain.components.rewards.verdict import Verdict
from posttrain.statistics.intervals import mean
from posttrain.types import Task

BATCH, RATE, FLOOR, VALUE_RATE, GAMMA, LAM, ENTROPY = 16, 50.0, 0.3, 0.1, 1.0, 0.95, 0.1
HORIZON, LAST, WINDOW = 24, 20, 160
RULE = Captions(of=Verdict(), helpful=HELPFUL, noise=0.1)
ARMS: dict[str, dict[str, Any]] = {
    "environment alone": {"weight": 0.0},
    "table": {},
    "classifier": {"model": "classifier"},
    "ranking": {"model": "ranking"},
    "table, exponent 1": {"exponent": 1.0},
    "table, exponent 0": {"exponent": 0.0},
    "table, labels 20 steps late": {"delay": 20},
    "classifier, 20 steps late": {"model": "classifier", "delay": 20},
    "ranking, 20 steps late": {"model": "ranking", "delay": 20},
    "table, 20 steps late, requested again": {"delay": 20, "once": False},
}


class Player:
    """Softmax tables of actions, and values."""

    def __init__(self) -> None:
        self.logits: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(ACTIONS)))
        self.values: dict[str, float] = defaultdict(float)
        self.rows: list[tuple[str, int, float, float]] = []

    def chances(self, state: str) -> np.ndarray:
        """[actions] probabilities."""
        powers: np.ndarray = np.exp(self.logits[state] - self.logits[state].max())
        powers /= powers.sum()
        return powers

    def credit(self, states: list[str], actions: list[int], rewards: list[float]) -> None:
        """GAE over an episode."""
        value = [*(self.values[state] for state in states), 0.0]
        ahead = 0.0
        for turn in reversed(range(len(states))):
            ahead = rewards[turn] + GAMMA * value[turn + 1] - value[turn] + GAMMA * LAM * ahead
            self.rows.append((states[turn], actions[turn], ahead, ahead + value[turn]))

    def learn(self) -> None:
        """Move the logits by whitened advantages and an entropy bonus, the values towards their targets."""
        found = np.array([row[2] for row in self.rows])
        scaled = (found - found.mean()) / max(found.std(), FLOOR)
        moves: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(ACTIONS)))
        for (state, action, _, target), own in zip(self.rows, scaled, strict=True):
            chances = self.chances(state)
            logs = np.log(chances + 1e-12)
            moves[state] += own * (np.eye(len(ACTIONS))[action] - chances)
            moves[state] -= ENTROPY * chances * (logs - chances @ logs)
            self.values[state] += VALUE_RATE * (target - self.values[state])
        for state, move in moves.items():
            self.logits[state] = np.clip(self.logits[state] + RATE * move / len(self.rows), -8.0, 8.0)
        self.rows.clear()


def episode(player: Player, reward: Captions, context: RewardContext, name: str, rng: Random) -> tuple[float, int]:
    """Play and credit one episode: whether it ends at the exit, and the most occurrences of a rewarded caption."""
    room: Any = Captioned(horizon=HORIZON).instance(Task(key=name, prompt=""), rng.random)
    seen, done = room.begin(), False
    states, actions, captions = [], [], []
    while not done:
        states.append(seen.state_key)
        chance = player.chances(states[-1]).cumsum()
        actions.append(min(int(np.searchsorted(chance, rng.random())), len(ACTIONS) - 1))
        outcome = room.act(ACTIONS[actions[-1]])
        seen, done = outcome.observation, outcome.done
        captions.append(seen.text.partition("\n")[0])
    given = [reward.weight * own for own in reward.rewards(captions[:-1], context)] + [0.0]
    counts = Counter(text for text, own in zip(captions, given, strict=True) if own > 0)
    solved = room.verdict().value
    given[-1] += reward.extrinsic * solved
    player.credit(states, actions, given)
    return solved, max(counts.values(), default=0)


def one(reward: Captions, seed: int, steps: int) -> list[float]:
    """The numbers of a row, for a seed."""
    player, rng, found, first = Player(), Random(seed), [], float("nan")
    context = RewardContext(learning=True, seed=seed)
    state = context.state
    for step in range(steps):
        asyncio.run(reward.request(RewardContext(learning=True, seed=seed, step=step, state=state)))
        for number in range(BATCH):
            found.append(episode(player, reward, context, f"{seed}/{step}/{number}", rng))
        player.learn()
        if first != first and np.mean([own[0] for own in found[-WINDOW:]]) >= 0.5:
            first = float(step + 1)
    last = np.array(found[-LAST * BATCH :])
    return [*last.mean(0).tolist(), first if first == first else steps, len(state["seen"]), state.get("requests", 0)]


def main() -> None:
    """Print the table."""
    from dataclasses import replace

    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--arms", type=int, default=len(ARMS))
    given = parser.parse_args()
    table = []
    for name, settings in list(ARMS.items())[: given.arms]:
        rows = [one(replace(RULE, **settings), seed, given.steps) for seed in range(given.seeds)]
        row = [name]
        for values in zip(*rows, strict=True):
            own = mean(list(values))
            row.append(f"{own.value:.2f} [{own.interval.low:.2f}, {own.interval.high:.2f}]")
        table.append(row)
        print(json.dumps(row), flush=True)
    columns = ["reward", "at the exit", "repeats", "steps to half", "captions", "requests"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
