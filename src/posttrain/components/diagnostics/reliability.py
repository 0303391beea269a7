"""Reliability: R^2 of the true score given a reward, over the rollouts that four filtering rules keep.

Source: Shen and Zhang 2024 (Policy Filtration), arXiv:2409.06957, section 4: R^2 of a straight line for the score in
the reward, over the rollouts that each rule keeps of n per task: all, the best, the best and a random other, the best
and the worst. The paper chooses the training rule by this number. It is fitted to means of rollouts with similar
rewards. The R^2 of single rollouts is given too, which includes the variance of the score at one reward.

Differs: the paper does not give the number of bins.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import answer, check_roles
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.statistics.reliability import RULES, reliability
from posttrain.types import Group, Task

ROWS: Final = (240,)


@frozen
class Reliability(Diagnostic):
    """R^2 of a reward, by filtering rule."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Tasks that the model answers."""
    reward: Reward
    """The measured reward: the one that a run would be trained with. It must not need models of a recipe."""
    truth: Reward
    """The reward that gives the true score."""
    n: PositiveInt = 5
    """Rollouts per task, from which the rules choose."""
    bins: PositiveInt = 20
    """Number of bins of equal size of rollouts, by reward."""
    sampling: Sampling = Sampling()
    """Sampling of the rollouts."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample rollouts of every task, score each by both rewards, and fit."""
        check_roles(self.reward, self.truth)
        [subject] = subjects
        tasks = self.tasks.load()
        groups = wait_for(self._collect_all(subject.serve(subject.load()), tasks))
        rows = [_both(by_reward, by_truth) for by_reward, by_truth in groups]
        rewards, scores = [[r for r, _ in row] for row in rows], [[s for _, s in row] for row in rows]
        found = {
            rule: {
                "bins": reliability(rewards, scores, rule, self.bins),
                "rollouts": reliability(rewards, scores, rule, None),
            }
            for rule in RULES
        }
        rollouts = sum(map(len, rows))
        values: dict[str, Any] = {
            "tasks": len(tasks),
            "rollouts": rollouts,
            "left_out": len(tasks) * self.n - rollouts,
            "r_squared": found,
        }
        return Finding(values=values, lines=_lines(values))

    async def _collect_all(self, server: Server, tasks: Sequence[Task]) -> list[tuple[Group, Group]]:
        """The rollouts of each task, scored by the reward and by the truth."""
        return list(await asyncio.gather(*(self._collect(server, task) for task in tasks)))

    async def _collect(self, server: Server, task: Task) -> tuple[Group, Group]:
        group = await answer(server, "reliability", task, self.n, self.sampling)
        return await scored(group, self.reward, RewardContext()), await scored(group, self.truth, RewardContext())


def _both(by_reward: Group, by_truth: Group) -> list[tuple[float, float]]:
    """Reward and score of each rollout that has both."""
    pairs = [(a.score, b.score) for a, b in zip(by_reward, by_truth, strict=True)]
    return [(r.value, s.value) for r, s in pairs if r and s and np.isfinite([r.value, s.value]).all()]


def _lines(values: dict[str, Any]) -> list[str]:
    """One line per rule."""

    def worded(number: float | None) -> str:
        return "not defined" if number is None else f"{number:.3f}"

    left_out = f", {values['left_out']} more left out, whose scoring failed" if values["left_out"] else ""
    lines = [f"{values['rollouts']} rollouts of {values['tasks']} tasks{left_out}; R^2 of the score in the reward"]
    width = max(map(len, RULES.values()))
    for rule, name in RULES.items():
        found = values["r_squared"][rule]
        lines.append(f"{name:<{width}}  {worded(found['bins'])} (of single rollouts {worded(found['rollouts'])})")
    return lines
