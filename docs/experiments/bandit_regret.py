"""Regret of the oracle, of uniform play, of a greedy player and of models of runs on new bandits (EVOLvE).

All play the same bandits of `environments/bandits`, with draws of their own. A greedy player plays every arm once and
then the largest mean, the first of equals. Cumulative regret, averaged over the bandits, is fitted by
`posttrain.statistics.regret`: a power of the logarithm, and a line. ``episodes`` has the same episodes: success is that
the best arm was played most.

    posttrain run evolve --runs runs
    python docs/experiments/bandit_regret.py runs/FIRST runs/SECOND ...     # each is a seed
"""

import argparse
import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from episodes import episode_row

from posttrain.components.environments.bandits import Bandits
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.statistics.intervals import mean
from posttrain.statistics.regret import growth
from posttrain.types import Task

BANDITS = 60
Player = Callable[[Any, Random], str]


async def oracle(instance: Any, rng: Random) -> str:
    """UCB."""
    return str(await instance.solution())


async def uniform(instance: Any, rng: Random) -> str:
    """Any arm."""
    return rng.choice(instance._names)


async def greedy(instance: Any, rng: Random) -> str:
    """Every arm once, then the largest mean."""
    means = [instance._mean(arm) if count else math.inf for arm, count in enumerate(instance._counts)]
    return str(instance._names[means.index(max(means))])


async def played(player: Any, environment: Bandits, task: Task, seed: int) -> list[str]:
    """The arms of one episode."""
    rng, actions = Random(f"{seed} {task.key}"), []
    async with environment.open(task, Random(f"draws {seed} {task.key}").random) as opened:
        while len(actions) < environment.horizon:
            actions.append(await player(opened._instance, rng))
            await opened.step(actions[-1])
    return actions


async def of_model(
    folder: Path, environment: Bandits, tasks: Sequence[Task], seed: int
) -> tuple[list[list[str]], float]:
    """The arms of a model's episodes, sampled at temperature 1, and the mean number of its tokens."""
    policy = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
    server = Native().serve(policy, seed)
    turns = Turns(environment=environment, n=1, max_turns=environment.horizon, sampling=Sampling(max_tokens=3))
    found = await asyncio.gather(
        *(turns.collect(replace(task, prompt="episode 0-0"), {"policy": server.bind(task.key)}) for task in tasks)
    )
    rollouts = [group.trajectories[0] for (group,) in found]
    arms = [[s.text.strip().lower() for s in own.segments if s.trained] for own in rollouts]
    return arms, float(np.mean([own.num_trained for own in rollouts]))


def regret(environment: Bandits, task: Task, actions: Sequence[str]) -> np.ndarray:
    """[turns] expected regret of each turn; a text that is no arm has that of uniform play."""
    means, names = environment.means(task), environment.named
    gaps = [max(means) - own for own in means]
    return np.array([gaps[names.index(a)] if a in names else float(np.mean(gaps)) for a in actions])


def episode(environment: Bandits, tasks: Sequence[Task], actions: Sequence[Sequence[str]]) -> dict[str, float]:
    """Means of the episodes of a seed."""
    best = [environment.named[np.argmax(environment.means(task))] for task in tasks]
    most = [max(environment.named, key=own.count) for own in actions]
    return {
        "success": float(np.mean([one == other for one, other in zip(best, most, strict=True)])),
        "turns": float(np.mean([len(own) for own in actions])),
        "regret": float(np.mean([regret(environment, t, a).sum() for t, a in zip(tasks, actions, strict=True)])),
    }


def row(environment: Bandits, tasks: Sequence[Task], plays: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    """Total regret over seeds, the share of the best arm late, episodes that are stuck, and the fitted growth."""
    curves = [np.mean([regret(environment, t, a) for t, a in zip(tasks, own, strict=True)], 0) for own in plays]
    found = mean([float(curve.sum()) for curve in curves]) if len(curves) > 1 else None
    total = (
        f"{found.value:.1f} [{found.interval.low:.1f}, {found.interval.high:.1f}]"
        if found
        else f"{curves[0].sum():.1f}"
    )
    late = [regret(environment, t, a)[-10:] == 0 for own in plays for t, a in zip(tasks, own, strict=True)]
    fit = growth(np.mean(curves, 0).cumsum().tolist(), environment.gap)
    stuck = float(np.mean([not one.any() for one in late]))
    return [total, f"{np.mean(late):.2f}", f"{stuck:.2f}", f"{fit.line:.3f}", f"{fit.power:g}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=Path)
    given = parser.parse_args()
    environment = Bandits()
    tasks = [Task(key=f"new {number}", prompt="") for number in range(BANDITS)]
    table, episodes = [], []
    for player in (oracle, greedy, uniform):
        plays = [[asyncio.run(played(player, environment, task, seed)) for task in tasks] for seed in range(5)]
        table.append([player.__name__, *row(environment, tasks, plays)])
        episodes.append(episode_row(player.__name__, [episode(environment, tasks, own) for own in plays]))
    folders = [run / "model" if (run / "model").exists() else run for run in given.runs]
    if folders:
        name = f"models of {len(folders)} runs"
        found = [asyncio.run(of_model(folder, environment, tasks, seed)) for seed, folder in enumerate(folders)]
        table.append([name, *row(environment, tasks, [own for own, _ in found])])
        means = [{**episode(environment, tasks, own), "tokens": tokens} for own, tokens in found]
        episodes.append(episode_row(name, means))
    columns = ["player", f"regret at {environment.horizon}", "best arm, last 10", "stuck", "line", "power"]
    print(json.dumps({"columns": columns, "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
