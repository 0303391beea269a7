"""Rooms that are visited by Adversarial Surprise, and by players with one of its two aims (tables).

A ring of six rooms with three cells each, two of them full of random colours until their light is off; four rounds of
16 turns. The table's state is what is seen, the cell within the room, the likeliest word so far, and the half of the
round. Density, rounds and rewards are those of `rollouts/surprise`, advantages those of GAE with a table of values.
One role for the whole episode is rewarded at each turn: for surprise (explore alone) or for its opposite (control
alone). Rooms are counted over the last 200 of the episodes; ``episodes`` has their turns and regret.

    python docs/experiments/surprise_rooms.py
"""

import argparse
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from episodes import episode_row

from posttrain.components.environments.rooms import ACTIONS, Rooms
from posttrain.components.rollouts._surprise import GREATEST, Density, turn_of
from posttrain.statistics.intervals import mean
from posttrain.types import Task

ROUNDS, LENGTH, BATCH, RATE, VALUE_RATE, GAMMA, LAM, ENTROPY = 4, 16, 16, 150.0, 0.1, 0.99, 0.95, 0.01
ARMS: dict[str, dict[str, Any]] = {
    "random": {"aim": "none"},
    "explore alone": {"aim": "explore"},
    "control alone": {"aim": "control"},
    "Adversarial Surprise": {"aim": "both"},
    "the same, all turns of Control scored": {"aim": "both", "quiet": 0.0},
    "the same, counts of a round": {"aim": "both", "buffer": "round"},
}


@dataclass
class Role:
    """A softmax table with values."""

    logits: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    moves: dict[str, np.ndarray] = field(default_factory=dict)
    pending: list[tuple[str, int, float, float]] = field(default_factory=list)

    def chances(self, state: str) -> np.ndarray:
        """[actions] probabilities."""
        powers: np.ndarray = np.exp(self.logits.setdefault(state, np.zeros(len(ACTIONS))))
        powers /= powers.sum()
        return powers

    def credit(self, states: list[str], actions: list[int], rewards: list[float]) -> None:
        """GAE over the role's own turns of an episode."""
        value = [self.values.get(state, 0.0) for state in states] + [0.0]
        following = 0.0
        for turn in reversed(range(len(states))):
            following = rewards[turn] + GAMMA * value[turn + 1] - value[turn] + GAMMA * LAM * following
            self.pending.append((states[turn], actions[turn], following, following + value[turn]))

    def learn(self) -> None:
        """Move the logits by whitened advantages and an entropy bonus, and the values towards their targets."""
        advantages = np.array([row[2] for row in self.pending])
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        moves: dict[str, np.ndarray] = {}
        for (state, action, _, target), advantage in zip(self.pending, advantages, strict=True):
            chances = self.chances(state)
            logs = np.log(chances + 1e-12)
            bonus = -chances * (logs - (chances * logs).sum())
            moves[state] = (
                moves.get(state, 0.0) + advantage * (np.eye(len(ACTIONS))[action] - chances) + ENTROPY * bonus
            )
            self.values[state] = self.values.get(state, 0.0) + VALUE_RATE * (target - self.values.get(state, 0.0))
        for state, move in moves.items():
            self.logits[state] = self.logits[state] + RATE * move / len(self.pending)
        self.pending.clear()


def episode(roles: dict[str, Role], arm: dict[str, Any], rules: Rooms, name: str, rng: Random) -> dict[str, float]:
    """Play and credit one episode."""
    ring: Any = rules.instance(Task(key=name, prompt=""), rng.random)
    density, seen, aim = Density(), "dark", arm["aim"]
    played: dict[str, tuple[list[str], list[int], list[float]]] = {role: ([], [], []) for role in roles}
    total, before = 0.0, 0
    for number in range(ROUNDS * LENGTH):
        turn = turn_of(number, LENGTH, arm.get("quiet", 0.5))
        role = ("explore", "control")[turn.controls] if aim == "both" else "explore"
        half = int(number % LENGTH >= LENGTH // 2)
        state = f"{seen} {ring.place} {density.shown().split()[0]} {half}"
        chances = roles[role].chances(state)
        action = min(int(np.searchsorted(chances.cumsum(), rng.random())), len(ACTIONS) - 1)
        ring.act(ACTIONS[action])
        seen, reward = ring.seen(), 0.0
        if turn.scored or aim in ("explore", "control"):
            reward = density.logp([seen]) / GREATEST
            density.add([seen])
        states, actions, rewards = played[role]
        states.append(state)
        actions.append(action)
        rewards.append(-reward if aim == "explore" else reward)
        if aim == "both" and turn.last and not turn.controls:
            before = len(rewards) - 1
        if aim == "both" and turn.controls:
            total += reward
            if turn.last:
                played["explore"][2][before], total = -total, 0.0
                density = Density() if arm.get("buffer") == "round" else density
    for role, own in played.items():
        if own[0] and aim != "none":
            roles[role].credit(*own)
    return dict(ring.measures())


def visited(arm: dict[str, Any], seed: int, episodes: int) -> dict[str, float]:
    """Mean rooms visited, rooms left with light, and regret, in the last 200 episodes."""
    rng, rules = Random(seed), Rooms(horizon=ROUNDS * LENGTH)
    roles, found = {"explore": Role(), "control": Role()}, []
    for number in range(episodes):
        found.append(episode(roles, arm, rules, f"{seed}/{number}", rng))
        if (number + 1) % BATCH == 0:
            for role in roles.values():
                if role.pending:
                    role.learn()
    return {name: float(np.mean([own[name] for own in found[-200:]])) for name in ("rooms", "lit", "regret")}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=1600)
    given = parser.parse_args()
    table, episodes = [], []
    for name, arm in ARMS.items():
        rows = [visited(arm, seed, given.episodes if arm["aim"] != "none" else 200) for seed in range(given.seeds)]
        cells = [mean(np.array([own[key] for own in rows])) for key in ("rooms", "lit")]
        turns = float(ROUNDS * LENGTH)
        episodes.append(episode_row(name, [{"turns": turns, "regret": own["regret"]} for own in rows]))
        table.append([name, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
    print(
        json.dumps(
            {"columns": ["player", "rooms visited", "rooms left with light"], "table": table, "episodes": episodes},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
