"""Memory-R+ on a bandit of 30 texts, one of them right: do memories of thoughts help, and with shuffled texts?

    python docs/experiments/thought_memories.py --seeds 5

A thought is one of five openings, three ways and two ends; its logit is the sum of a weight for each. The right one
has the probability 0.02 at the start, as the weights of its three parts are lower. 3,000 rollouts, 8 in a step, of
one question; advantages are rewards minus the mean of the step, gradient steps of 0.5. The reward is 1 for the right
thought alone, or the component `episodic_memory` around that; as a control 2 or 3 for the right thought alone, about
what it has with the memories. Shuffled: every thought is put down as another one's text, so that texts are as alike as
before, and this has nothing to do with the parts that the policy can choose.

Reported are the steps until the right thought has the probability one half (375 where it never has), its probability
at the end, and the share of the reward that the memories gave.
"""

import argparse
import asyncio
import itertools
import json
from typing import Any

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.episodic_memory import EpisodicMemory
from posttrain.components.rewards.match import Match
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

OPENINGS = ("first the tens", "guess a number", "count on fingers", "write both down", "say nothing")
WAYS = ("then add the units with the carry", "then multiply all of it", "then repeat the question")
ENDS = ("and check the sum again", "and stop at once")
PARTS = list(itertools.product(range(5), range(3), range(2)))
TEXTS = [f"{OPENINGS[a]}, {WAYS[b]}, {ENDS[c]}" for a, b, c in PARTS]
RIGHT, FIRST = 0, 0.02
DRAWS, STEPS, RATE = 8, 375, 0.5
TASK = Task(key="q", prompt="27+36=", answer="63")
REWARDS = {
    "the answer alone": (1.0, 0.0, 0.0),
    "the answer alone, times 2": (2.0, 0.0, 0.0),
    "the answer alone, times 3": (3.0, 0.0, 0.0),
    "exploit": (1.0, 1.0, 0.0),
    "exploit and explore": (1.0, 1.0, 1.0),
}
"""Rewards of a right answer, and the weights of `exploit` and `explore`."""


def features() -> np.ndarray:
    """[30, 10] which opening, way and end a thought has."""
    return np.array([np.concatenate([np.eye(5)[a], np.eye(3)[b], np.eye(2)[c]]) for a, b, c in PARTS])


def start() -> np.ndarray:
    """[10] weights with which the right thought has the probability `FIRST`."""
    low, high = -10.0, 10.0
    x, own = features(), features()[RIGHT]
    for _ in range(60):
        middle = (low + high) / 2
        p = np.exp(x @ (middle * own))
        low, high = (middle, high) if p[RIGHT] / p.sum() < FIRST else (low, middle)
    return np.asarray(low * own)


def rollout(text: str, right: bool, sample: int) -> Trajectory:
    """A thought with the answer that it leads to."""
    written = f"<think>{text}</think>\n{63 if right else 62}"
    segment = Segment(actor="policy", token_ids=np.arange(2), trained=True, text=written)
    return Trajectory(task=TASK, segments=(segment,), stop_reason="stop", sample=sample)


def trained(rewards: tuple[float, float, float], shuffled: bool, seed: int) -> tuple[float, float, float]:
    """Steps to one half, the probability at the end, and the memories' share of the reward."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 91]))
    order = rng.permutation(len(TEXTS)) if shuffled else np.arange(len(TEXTS))
    right, exploit, explore = rewards
    reward = EpisodicMemory(of=Match(), exploit=exploit, explore=explore, warm_up=1)
    state: dict[str, Any] = {}
    x, own = features(), start()
    until, given, base = STEPS, 0.0, 0.0
    for step in range(STEPS):
        p = np.exp(x @ own)
        p /= p.sum()
        if p[RIGHT] >= 0.5 and until == STEPS:
            until = step
        arms = rng.choice(len(TEXTS), DRAWS, p=p)
        rows = tuple(rollout(TEXTS[order[arm]], arm == RIGHT, i) for i, arm in enumerate(arms))
        if exploit:
            context = RewardContext(step=step, learning=True, state=state)
            scores = asyncio.run(reward.score(Group(trajectories=rows, key="q"), context))
            value = np.array([score.value for score in scores])
        else:
            value = right * (arms == RIGHT)
        given, base = given + value.sum(), base + right * float((arms == RIGHT).sum())
        own = own + RATE * ((value - value.mean())[:, None] * (x[arms] - p @ x)).mean(0)
    p = np.exp(x @ own)
    return float(until), float(p[RIGHT] / p.sum()), float((given - base) / max(given, 1e-9))


def shown(values: list[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.{digits}f} [{own.interval.low:.{digits}f}, {own.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for name, rewards in REWARDS.items():
        for shuffled in (False, True) if rewards[1] else (False,):
            until, end, share = zip(*(trained(rewards, shuffled, seed) for seed in seeds), strict=True)
            label = f"{name}, shuffled" if shuffled else name
            table.append([label, shown(list(until), 0), shown(list(end), 3), shown(list(share), 2)])
    columns = ["reward", "steps to one half", "probability of the right thought", "share of the memories"]
    print(json.dumps({"columns": columns, "table": table}))


if __name__ == "__main__":
    main()
