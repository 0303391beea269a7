"""Does a pool of tasks that evolves follow the learner? Sheet of row 106 (arXiv:2411.00062).

A simulated learner solves a sum of l numbers with probability sigmoid(theta - 1.2 (l - 2)); theta begins at 0.5. A step
takes 48 tasks with 6 rollouts each. A group with the share s correct moves theta by 0.5 sqrt(s (1 - s)), averaged over
the groups, as a normalized policy gradient does. The pool has 96 sums of two or three numbers; the curriculum `evolved`
rewrites them by its rule, a number more or a number less, each with probability 1/2. 60 steps, so that 29 rounds.

    gap, regret, second, variance, mean, hard     what tasks are drawn by
    none                                          drawn uniformly, then rewritten
    as given                                      no task is rewritten

Reported at the end: mean length of the tasks that were taken in the last ten steps, the learner's frontier (the length
solved half of the time), and the probability of success at lengths 5 and 8.

    python docs/experiments/frontier.py --seeds 5
"""

import argparse
import asyncio
import json
import math

import numpy as np

from posttrain.components.curricula import Curriculum
from posttrain.components.curricula.evolved import Evolved
from posttrain.components.curricula.uniform import Uniform
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score, Segment, Task, Trajectory

STEPS, PROMPTS, N, RATE, SLOPE = 60, 48, 6, 0.5, 1.2
ARMS = ("gap", "regret", "second", "variance", "mean", "hard", "none")


class Probe:
    """Without models and held-out tasks."""

    samplers: dict[str, object] = {}  # noqa: RUF012
    held_out: frozenset[str] = frozenset()


def rate(theta: float, length: float) -> float:
    """Probability that a sum of this many numbers is solved."""
    return 1.0 / (1.0 + math.exp(SLOPE * (length - 2) - theta))


def rollout(task: Task, *, solved: bool) -> Trajectory:
    """A scored rollout."""
    score = Score(value=float(solved), status="ok" if solved else "wrong")
    return Trajectory(
        task=task, segments=(Segment(actor="policy", token_ids=np.arange(1)),), stop_reason="stop", score=score
    )


def play(curriculum: Curriculum, seed: int) -> dict[str, float]:
    """What a learner reaches with a curriculum."""
    rng = np.random.default_rng([seed, 1])
    pool = list(Arithmetic(size=96, terms=(2, 3), seed=seed).load())
    state, theta, lengths = curriculum.start(), 0.5, list[float]()
    for step in range(STEPS):
        state = asyncio.run(curriculum.look(state, pool, Probe(), PROMPTS, seed=seed, step=step))  # type: ignore[arg-type]
        state, picks = curriculum.select(state, pool, PROMPTS, seed=seed, step=step)
        groups, gains, own = [], list[float](), list[float]()
        for pick in picks:
            length = len(str(pick.task.fields["expression"]).replace("-", "+").split("+"))
            solved = rng.random(N) < rate(theta, length)
            groups.append(
                Group(key=pick.task.key, trajectories=tuple(rollout(pick.task, solved=bool(s)) for s in solved))
            )
            gains.append(math.sqrt(solved.mean() * (1.0 - solved.mean())))
            own.append(length)
        state = curriculum.observe(state, groups)
        theta += RATE * float(np.mean(gains))
        lengths.append(float(np.mean(own)))
    return {
        "length taken": float(np.mean(lengths[-10:])),
        "frontier": 2.0 + theta / SLOPE,
        "success at 5": rate(theta, 5),
        "success at 8": rate(theta, 8),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    arms: dict[str, Curriculum] = {name: Evolved(informativeness=name) for name in ARMS}  # type: ignore[arg-type]
    table, columns = [], list[str]()
    for name, curriculum in {**arms, "as given": Uniform()}.items():
        found = [play(curriculum, seed) for seed in seeds]
        columns = list(found[0])
        cells = []
        for column in columns:
            own = mean([one[column] for one in found])
            cells.append(f"{own.value:.2f} [{own.interval.low:.2f}, {own.interval.high:.2f}]")
        table.append([name, *cells])
    print(json.dumps({"columns": ["drawn by", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
