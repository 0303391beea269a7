"""The sum of rewards by dimension, each weighed by the strength of its controller: r = sum_k eps_k R_k.

Source: LDC, arXiv:2412.14626: a separate reward model for each dimension. The sum is an engineering reading, not
verified. Strengths are the field ``eps`` of the task (`tasks/steered`), of several rows their mean; where a task has
none, or they are planned, all are 1 / K. A dimension whose strength is 0 is not scored. The scores are in the record as
parts, by name.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.types import Group, Score, Task


@frozen
class Steered(Reward):
    """Scores by the strengths of the task."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """The reward of each dimension by name, in the order of the controllers."""
    correct_at: float = 1.0
    """Smallest value that counts as correct."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts."""
        return self.parts

    def check(self, tasks: Sequence[Task]) -> None:
        """Strengths must fit."""
        super().check(tasks)
        for task in tasks:
            self._strengths(task)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score by the dimensions whose strength is not 0."""
        if not len(group):
            return []
        try:
            strengths = self._strengths(group.trajectories[0].task)
        except UserError as error:
            return [failure(str(error))] * len(group)
        found = {
            name: await part.score(group, context)
            for (name, part), eps in zip(self.parts.items(), strengths, strict=True)
            if eps
        }
        weights = dict(zip(self.parts, strengths, strict=True))
        rows = [{name: scores[n] for name, scores in found.items()} for n in range(len(group))]
        return [self._sum(row, weights) for row in rows]

    def _sum(self, parts: Mapping[str, Score], weights: Mapping[str, float]) -> Score:
        broken = next((name for name, part in parts.items() if part.status == "error"), None)
        if broken is not None:
            return failure(f"{broken}: {parts[broken].explanation}", parts=parts)
        value = float(sum(weights[name] * part.value for name, part in parts.items()))
        explanation = ", ".join(f"{weights[name]:g} x {name} {part.value:.3g}" for name, part in parts.items())
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            explanation=explanation or "all strengths are 0",
            parts=parts,
        )

    def _strengths(self, task: Task) -> list[float]:
        """One number for each part. Raises `UserError` for strengths that do not fit."""
        given = task.fields.get("eps", "planned")
        if given == "planned":
            return [1.0 / len(self.parts)] * len(self.parts)
        try:
            rows = np.array(given, np.float64)
        except (TypeError, ValueError):
            rows = np.zeros(0)
        if rows.ndim != 2 or rows.shape[1] != len(self.parts) or not len(rows) or not np.isfinite(rows).all():
            raise TaskFault(
                task.key,
                f"task {task.key}: the reward '{self.kind}' needs strengths in the field 'eps', rows of "
                f"{len(self.parts)} numbers; take tasks of the kind steered with as many dimensions",
            )
        return [float(x) for x in rows.clip(-1.0, 1.0).mean(0)]
