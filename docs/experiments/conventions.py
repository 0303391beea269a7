"""Conventions of pairs that were trained apart, on a ring where two players meet without seeing each other.

A policy is a table of logits over what a player sees: whether it acts first, its cell, the last word, its moves so far.
It plays with itself and learns by GRPO: 8 games of each of the 20 first states in a step, rewards 0 and 1. Four such
policies then play with one another, in all orders. A fifth one learns with those four as partners. ``episodes`` has the
same games: success is that both meet, a turn is a move of one player, and regret what is missed of the optimum of 1.

    python docs/experiments/conventions.py
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from episodes import episode_row
from numpy.typing import NDArray

from posttrain.datasets.meeting import STEPS, starts
from posttrain.statistics.intervals import mean

RING, LIMIT, GAMES, POLICIES, RATE = 5, 6, 8, 4, 1.0
FIRST = np.array([state.places for state in starts(RING, LIMIT)]).repeat(GAMES, 0)
MOVES = np.array(list(STEPS.values()))
Reals = NDArray[np.float64]
Seen = list[tuple[tuple[NDArray[Any], ...], NDArray[np.int64], NDArray[np.bool_]]]


def new() -> Reals:
    """Logits by: acts first or second, cell, last word or none, own moves so far, action (word, step)."""
    return np.zeros((2, RING, RING + 1, LIMIT // 2, RING * len(MOVES)))


def played(tables: Sequence[Reals], rng: np.random.Generator) -> tuple[Reals, Seen]:
    """[B] returns of all games, and for each turn the states, the actions, and which games were still on."""
    place, heard = FIRST.copy(), np.full_like(FIRST, RING)
    met = np.zeros(len(place), bool)
    seen: Seen = []
    for turn in range(LIMIT):
        own, state = turn % 2, (turn % 2, turn // 2)
        index = (np.full(len(place), own), place[:, own], heard[:, own], np.full(len(place), state[1]))
        logits = tables[own][index]
        p_BK = np.exp(logits - logits.max(1, keepdims=True))
        p_BK /= p_BK.sum(1, keepdims=True)
        action = (p_BK.cumsum(1) < rng.random((len(place), 1))).sum(1).clip(max=p_BK.shape[1] - 1)
        seen.append((index, action, ~met))
        place[:, own] = np.where(met, place[:, own], (place[:, own] + MOVES[action % len(MOVES)]) % RING)
        heard[:, 1 - own] = action // len(MOVES)
        met |= place[:, 0] == place[:, 1]
    return met.astype(np.float64), seen


def learn(table: Reals, own: set[int], value_B: Reals, seen: Seen) -> None:
    """One step of GRPO on the turns of these players."""
    groups = value_B.reshape(-1, GAMES)
    advantage = ((groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-6)).reshape(-1)
    moves = np.zeros_like(table)
    for turn, (index, action, on) in enumerate(seen):
        if turn % 2 in own:
            logits = table[index]
            p_BK = np.exp(logits - logits.max(1, keepdims=True))
            move_BK = -p_BK / p_BK.sum(1, keepdims=True)
            move_BK[np.arange(len(action)), action] += 1
            np.add.at(moves, index, (advantage * on)[:, None] * move_BK)
    table += RATE * moves / len(FIRST) * GAMES


def trained(rng: np.random.Generator, steps: int, partners: Sequence[Reals] = ()) -> Reals:
    """A table that has learned with itself, or with partners drawn for each step, in both orders."""
    table = new()
    for _ in range(steps):
        if not partners:
            value_B, seen = played((table, table), rng)
            learn(table, {0, 1}, value_B, seen)
            continue
        other = partners[int(rng.integers(len(partners)))]
        for own in (0, 1):
            value_B, seen = played((table, other) if own == 0 else (other, table), rng)
            learn(table, {own}, value_B, seen)
    return table


def both(one: Reals, other: Reals, rng: np.random.Generator) -> tuple[float, float]:
    """Mean return and moves of two tables, in both orders."""
    games = [played(pair, rng) for pair in ((one, other), (other, one))]
    moves = [np.sum([on for _, _, on in seen], axis=0) for _, seen in games]
    return float(np.mean([value_B.mean() for value_B, _ in games])), float(np.mean(moves))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1600)
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    episodes: dict[str, list[dict[str, float]]] = {}
    for seed in range(given.seeds):
        rng = np.random.default_rng(seed)
        own = [trained(rng, given.steps) for _ in range(POLICIES)]
        pool = trained(rng, given.steps, own)
        games = np.array([[both(one, other, rng) for other in own] for one in own])
        off = ~np.eye(POLICIES, dtype=bool)
        rows = {
            "untrained": np.array(both(new(), new(), rng)),
            "with itself": games[~off].mean(0),
            "with another": games[off].mean(0),
            "trained with all four, with each": np.mean([both(pool, other, rng) for other in own], 0),
        }
        for name, (value, moves) in rows.items():
            found.setdefault(name, []).append(float(value))
            episodes.setdefault(name, []).append({"success": value, "turns": moves, "regret": 1 - value})
        for name in ("with itself", "trained with all four, with each"):
            other = f"{name.removesuffix(', with each')}, minus with another"
            found.setdefault(other, []).append(float(rows[name][0] - rows["with another"][0]))
    table = []
    for name, values in found.items():
        cell = mean(np.array(values))
        table.append([name, f"{cell.value:.2f} [{cell.interval.low:.2f}, {cell.interval.high:.2f}]"])
    held_out = [episode_row(name, own) for name, own in episodes.items()]
    print(json.dumps({"columns": ["player", "mean return"], "table": table, "episodes": held_out}, indent=1))


if __name__ == "__main__":
    main()
