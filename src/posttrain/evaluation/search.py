"""Held-out evaluation of answers by search: one answer per task, selected by value, then scored.

The draws are a function of (seed, task key), as in `posttrain.evaluation.greedy`. The verifier only scores the selected
answers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.search import Found, Search
from posttrain.engines import Server, wait_for
from posttrain.evaluation.greedy import Evaluated
from posttrain.statistics.intervals import wilson
from posttrain.types import Group, Task, Trajectory


def evaluate_search(
    servers: Mapping[str, Server], tasks: Sequence[Task], verifier: Reward, search: Search, correct_at: float
) -> Evaluated:
    """Answer every task by search, and score the answers. One that could not be scored is an error, not wrong.

    The summary has ``accuracy``, ``accuracy_interval``, ``correct``, ``tasks``, ``errors``, and the mean of each
    statistic of the searches.
    """

    async def one(task: Task) -> tuple[Found, Trajectory]:
        samplers = {role: server.bind("evaluation", task.key, "search") for role, server in servers.items()}
        found = await search.search(task, samplers)
        answer = found.best
        [graded] = await scored(Group(trajectories=(answer,), key=task.key), verifier, RewardContext())
        return found, graded

    async def run() -> list[tuple[Found, Trajectory]]:
        return list(await asyncio.gather(*map(one, tasks)))

    results = wait_for(run())
    answers = tuple(answer for _, answer in results)
    return Evaluated(trajectories=answers, summary=_summary(answers, [found for found, _ in results], correct_at))


def _summary(answers: Sequence[Trajectory], searches: Sequence[Found], correct_at: float) -> dict[str, Any]:
    """The summary of scored answers and of the searches."""
    scores = [t.score for t in answers if t.score is not None and t.score.status != "error"]
    correct = sum(score.value >= correct_at for score in scores)
    names = sorted({name for found in searches for name in found.statistics})
    return {
        "accuracy": correct / len(scores) if scores else None,
        "accuracy_interval": list(wilson(correct, len(scores))) if scores else None,
        "correct": correct,
        "tasks": len(answers),
        "errors": len(answers) - len(scores),
        **{name: float(np.mean([found.statistics.get(name, 0.0) for found in searches])) for name in names},
    }
