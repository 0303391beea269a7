"""Rules from failures in the workshop, for an agent that acts at random and does not learn; five seeds.

    python docs/experiments/foresight.py --seeds 5

Rounds of 20 episodes; after 0, 1, 2 and 4 rounds the success on 100 new tasks, what was carried out and refused, and
how many of the six hidden preconditions the rules are. Then, after 2, 20 and 500 episodes without rules, how often a
classifier of single words and the kept rules predict whether an action works, on new states. ``episodes`` has the same
episodes' success, turns and regret.
"""

import argparse
import asyncio
import json
from random import Random

import numpy as np
from episodes import episode_row

from posttrain.components.environments.foreseen import Foreseen
from posttrain.components.environments.workshop import NEEDS, Workshop
from posttrain.statistics.action_rules import RuleBook, Transition, words_of
from posttrain.statistics.intervals import mean
from posttrain.types import Task

HIDDEN = {f"{a} if {n}:{'shut' if n == 'door' else 'off' if n == 'light' else 'no'}" for a in NEEDS for n in NEEDS[a]}


async def episode(rules: tuple[str, ...], key: str, rng: Random) -> tuple[list[Transition], dict[str, float]]:
    """One episode: what was carried out, and the measures with ``success``."""
    environment, found = Foreseen(environment=Workshop(), rules=rules), []
    async with environment.open(Task(key=key, prompt=""), rng.random) as instance:
        seen, done, carried, turns = instance.begin(), False, 0, 0
        while not done:
            action = rng.choice(list(NEEDS))
            outcome, turns = await instance.step(action), turns + 1
            now = int(instance.measures()["carried_out"])
            if now > carried:
                worked = not outcome.observation.text.startswith("fails ")
                found.append(Transition(words=words_of(seen.state_key or ""), action=action, worked=worked))
            seen, done, carried = outcome.observation, outcome.done, now
        verdict = instance.verdict()
        success = float(verdict is not None and verdict.solved)
        return found, {**instance.measures(), "success": success, "turns": float(turns)}


def played(rules: tuple[str, ...], what: str, count: int, seed: int) -> tuple[list[Transition], dict[str, float]]:
    """Episodes of new tasks: all transitions, and the means of measures."""
    rng = Random(f"{what} {seed}")
    both = [asyncio.run(episode(rules, f"{what} {seed} {i}", rng)) for i in range(count)]
    means = {name: float(np.mean([m[name] for _, m in both])) for name in both[0][1]}
    return [t for transitions, _ in both for t in transitions], means


def texts(book: RuleBook) -> tuple[str, ...]:
    """The kept rules."""
    return tuple(rule.text for rule in book.rules)


def rounds(seed: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """A row for each number of rounds, and the means of all measures."""
    book, rows, all_means = RuleBook(), [], []
    for turn in range(5):
        if turn in (0, 1, 2, 4):
            means = played(texts(book), "test", 100, seed)[1]
            kept = set(texts(book))
            all_means.append(means)
            rows.append(
                {
                    "rounds": turn,
                    "success": means["success"],
                    "carried out": means["carried_out"],
                    "failed": means["failed"],
                    "refused": means["refused"],
                    "hidden rules found": len(kept & HIDDEN),
                    "other rules": len(kept - HIDDEN),
                }
            )
        book = book.learned(played(texts(book), f"round {turn}", 20, seed)[0])
    return rows, all_means


def classifier(transitions: list[Transition], tests: list[Transition]) -> float:
    """Accuracy of a logistic regression for each action on single words."""
    vocabulary = sorted(frozenset[str]().union(*(t.words for t in transitions)))

    def features(given: list[Transition]) -> np.ndarray:
        rows = np.zeros((len(given), len(NEEDS), len(vocabulary) + 1))
        for i, t in enumerate(given):
            rows[i, list(NEEDS).index(t.action)] = [*(float(word in t.words) for word in vocabulary), 1.0]
        return rows.reshape(len(given), -1)

    x, y = features(transitions), np.array([t.worked for t in transitions], float)
    weights = np.zeros(x.shape[1])
    for _ in range(500):
        p = 1 / (1 + np.exp(-x @ weights))
        weights -= 2.0 * (x.T @ (p - y) / len(y) + 1e-4 * weights)
    return float(np.mean((features(tests) @ weights > 0) == np.array([t.worked for t in tests])))


def predicted(seed: int, count: int) -> dict[str, float]:
    """Accuracy of both after episodes at random, on all actions in the states of new episodes."""
    transitions = played((), f"fit {count}", count, seed)[0]
    states = {t.words for t in played((), "states", 100, seed)[0]}
    tests = [
        Transition(words=words, action=a, worked=not any(f"{a} if {w}" in HIDDEN for w in words))
        for words in sorted(states, key=sorted)
        for a in NEEDS
    ]
    book = RuleBook().learned(transitions)
    right = [any(rule.forbids(t.words, t.action) for rule in book.rules) != t.worked for t in tests]
    return {"rules": float(np.mean(right)), "classifier": classifier(transitions, tests)}


def said(values: list[float], digits: int = 2) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    found = [rounds(seed) for seed in range(given.seeds)]
    by_seed = [rows for rows, _ in found]
    episodes = [
        episode_row(f"rounds: {rows[0]['rounds']}", means)
        for rows, means in zip(zip(*by_seed, strict=True), zip(*(own for _, own in found), strict=True), strict=True)
    ]
    table = [
        [str(rows[0]["rounds"]), *(said([row[name] for row in rows]) for name in rows[0] if name != "rounds")]
        for rows in zip(*by_seed, strict=True)
    ]
    print(json.dumps({"columns": list(by_seed[0][0]), "table": table, "episodes": episodes}, indent=1))
    for count in (2, 20, 500):
        both = [predicted(seed, count) for seed in range(given.seeds)]
        print(count, {name: said([one[name] for one in both], 3) for name in both[0]})


if __name__ == "__main__":
    main()
