"""Reliability: how well a reward tells the true score of what is kept of a model's attempts, for four ways of keeping.

Source: Shen and Zhang 2024 (Policy Filtration), arXiv:2409.06957, section 4: R^2 of a straight line for the score in
the reward, over what each rule keeps of n attempts at a task: all, the best, the best and a random other, the best and
the worst. The paper chooses the rule to train with by this number. It is fitted to means of attempts with similar
rewards; beside it stands the R^2 of the attempts themselves, which sees how much the score varies at one reward.

Differs: the paper does not say into how many bins attempts are put.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.rewards import Reward, RewardContext, judged
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.reliability import RULES, reliability
from posttrain.types import Group, Segment, Task, Trajectory

ROWS: Final = (240,)


@frozen
class Reliability(Diagnostic):
    """R^2 of a reward, by what is kept."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """What the model attempts."""
    reward: Reward
    """What is looked at: the reward that a run would be trained with. One that asks models of a recipe cannot be."""
    truth: Reward
    """What the score really is."""
    n: PositiveInt = 5
    """Attempts at a task, from which the rules choose."""
    bins: PositiveInt = 20
    """Bins of equal size that attempts are put into, by reward."""
    sampling: Sampling = Sampling()
    """How attempts are drawn."""

    def examine(self, *subjects: Subject) -> Finding:
        """Attempt every task, judge each attempt twice, and fit."""
        asked = sorted(self.reward.roles | self.truth.roles)
        if asked:
            raise UserError(f"a reward asks the role '{asked[0]}', but here is one model only; take one that asks none")
        self.reward.prepare()
        self.truth.prepare()
        [subject] = subjects
        tasks = self.tasks.load()
        groups = wait_for(self._attempt_all(subject.serve(subject.load()), tasks))
        rows = [_both(by_reward, by_truth) for by_reward, by_truth in groups]
        rewards, scores = [[r for r, _ in row] for row in rows], [[s for _, s in row] for row in rows]
        found = {
            rule: {
                "bins": reliability(rewards, scores, rule, self.bins),
                "attempts": reliability(rewards, scores, rule, None),
            }
            for rule in RULES
        }
        attempts = sum(map(len, rows))
        values: dict[str, Any] = {
            "tasks": len(tasks),
            "attempts": attempts,
            "left_out": len(tasks) * self.n - attempts,
            "r_squared": found,
        }
        return Finding(values=values, lines=_lines(values))

    async def _attempt_all(self, server: Server, tasks: Sequence[Task]) -> list[tuple[Group, Group]]:
        """The attempts at each task, judged by the reward and by the truth."""
        return list(await asyncio.gather(*(self._attempt(server, task) for task in tasks)))

    async def _attempt(self, server: Server, task: Task) -> tuple[Group, Group]:
        sampler = server.bind("reliability", task.key)
        prompt = sampler.prompt(task)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        attempts = tuple(
            Trajectory(
                task=task,
                segments=(
                    prompt,
                    Segment(actor="policy", token_ids=c.token_ids, trained=True, logp=c.logp, text=c.text),
                ),
                stop_reason=c.stop_reason,
                sample=i,
            )
            for i, c in enumerate(completions)
        )
        group = Group(key=task.key, trajectories=attempts)
        return await judged(group, self.reward, RewardContext()), await judged(group, self.truth, RewardContext())


def _both(by_reward: Group, by_truth: Group) -> list[tuple[float, float]]:
    """Reward and score of each attempt that has both."""
    pairs = [(a.score, b.score) for a, b in zip(by_reward, by_truth, strict=True)]
    return [(r.value, s.value) for r, s in pairs if r and s and np.isfinite([r.value, s.value]).all()]


def _lines(values: dict[str, Any]) -> list[str]:
    """A line a rule."""

    def told(number: float | None) -> str:
        return "not defined" if number is None else f"{number:.3f}"

    left_out = f", {values['left_out']} more left out, whose judgement failed" if values["left_out"] else ""
    lines = [f"{values['attempts']} attempts at {values['tasks']} tasks{left_out}; R^2 of the score in the reward"]
    width = max(map(len, RULES.values()))
    for rule, name in RULES.items():
        found = values["r_squared"][rule]
        lines.append(f"{name:<{width}}  {told(found['bins'])} (of attempts by themselves {told(found['attempts'])})")
    return lines
