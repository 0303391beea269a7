"""Accuracy in each of five turns without an oracle, of RISE and of its controls; five answers in parallel beside them.

    python docs/experiments/retries.py --seeds 5

One run per arm and seed on the default setting. Answers are sampled at temperature 1. In the retries every answer is
called wrong, so that nothing shows which turn is right; "any turn" is what an oracle would stop at. The vote is the
most frequent answer of the five turns, and of five first answers.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from posttrain import run
from posttrain.components.rollouts.retried import Retried, Tries, vote
from posttrain.components.tasks.guessing import Guessing
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.settings.retried_guesses import FEEDBACK
from posttrain.statistics.intervals import mean
from posttrain.types import Task

ALWAYS = [
    "alarms.entropy_collapse.action=note",
    "threads=1",
    "checkpoints.every_steps=0",
    "evaluation.samples=0",
    "evaluation.holdout=20",
]
ARMS = {
    "after one step": ["rl.steps=1"],
    "first turns only": ["rollout.turns=1"],
    "RISE, 2 to 5 turns": [],
    "RISE, 20 steps in place of 40": ["rl.steps=20"],
}


async def answered(folder: Path, tasks: Sequence[Task], seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """For each task the answers of five turns, and five answers of one turn."""
    policy = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
    server = Native().serve(policy, seed)
    retries = Retried(n=1, feedback=FEEDBACK, sampling=Sampling(max_tokens=4))
    first = Retried(n=5, turns=1, feedback=FEEDBACK, sampling=Sampling(max_tokens=4))

    async def tries(rollout: Retried, task: Task) -> list[tuple[str, ...]]:
        [group] = await rollout.collect(task, {"policy": server.bind(rollout.turns, task.key)})
        facts = [t.fact(Tries) for t in group]
        return [fact.tries for fact in facts if fact is not None]

    serial = await asyncio.gather(*(tries(retries, task) for task in tasks))
    parallel = await asyncio.gather(*(tries(first, task) for task in tasks))
    return [list(one[0]) for one in serial], [[only for (only,) in five] for five in parallel]


def measured(folder: Path, tasks: Sequence[Task], seed: int) -> dict[str, float]:
    """Shares of right answers."""
    serial, parallel = asyncio.run(answered(folder, tasks, seed))
    gold = [task.answer for task in tasks]
    right = np.array([[a == g for a in own] for own, g in zip(serial, gold, strict=True)], float)
    voted = [[own[vote(own)] == g for own, g in zip(five, gold, strict=True)] for five in (serial, parallel)]
    return {
        "turn 1": right[:, 0].mean(),
        "turn 2": right[:, 1].mean(),
        "turn 5": right[:, 4].mean(),
        "any turn": right.max(1).mean(),
        "vote of 5 turns": float(np.mean(voted[0])),
        "vote of 5 first answers": float(np.mean(voted[1])),
    }


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval, in percent."""
    found = mean(np.array(values) * 100)
    return f"{found.value:.0f} [{found.interval.low:.0f}, {found.interval.high:.0f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arm", type=int, default=None, help="number of one arm")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    tasks, table, columns = Guessing(size=200, seed=9, hidden=0.0).load(), list[list[str]](), ["arm"]
    for number, (arm, changes) in enumerate(ARMS.items()):
        if given.arm not in (None, number):
            continue
        found = []
        for seed in range(given.seeds):
            done = run("rise", changes=[*ALWAYS, *changes, f"seed={seed}"], out=given.out, quiet=True)
            found.append(measured(done.folder / "model", tasks, seed))
        columns = ["arm", *found[0]]
        table.append([arm, *(cell([one[name] for one in found]) for name in found[0])])
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
