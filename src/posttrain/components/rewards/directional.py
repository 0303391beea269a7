"""The score of a text along the direction of its task: v1 times one attribute and v2 times another.

Source: Directional Preference Alignment, Wang et al. 2024, arXiv:2402.18571: with the ratings r of several attributes,
of which two are steered, and v the direction of the prompt (`tasks/directed`), the score is v1 helpfulness + v2
verbosity, of ratings from 0 to 100. Labels of 0 to 4 are 20 s + 10 there; no such scale changes which text is best, as
long as both attributes have the same.

The ratings are parts of another reward, such as `heads`, which may have more of them. With `standardized` each
attribute is first standardized within the rollouts of a task (population std, plus 1e-6); then an angle stands for
another trade-off, that of what the rollouts differ in.

An empty text scores 1 less than the worst of the others, and than 0: with a negative v2 it would be the best. A text
without one of the ratings is an error.

Differs: whether the paper standardizes could not be read; raw ratings are the default.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.types import Group, Score, Task, Trajectory

SMALLEST: Final = 1e-6


@frozen
class Directional(Reward):
    """Weighs two attributes by the direction of the task."""

    of: Reward
    """Rates the attributes: its scores have them as parts."""
    axes: tuple[str, str] = ("helpfulness", "verbosity")
    """Names of the parts that v1 and v2 weigh."""
    standardized: bool = False
    """Whether each attribute is standardized within the rollouts of a task first."""
    correct_at: float = 0.0
    """Smallest score that counts as correct, for the record only."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward that rates."""
        return {"of": self.of}

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a direction."""
        for task in tasks:
            if _direction(task) is None:
                raise TaskFault(
                    task.key,
                    f"task '{task.key}' has the direction {task.fields.get('direction')!r:.60}, where two finite "
                    "numbers are needed; wrap the tasks: tasks='{kind: directed, tasks: ...}'",
                )
        self.of.check(tasks)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Rate every text, and weigh its ratings."""
        rated = await self.of.score(group, context)
        found = [self._ratings(score) for score in rated]
        known = [isinstance(own, list) and bool(t.completion.strip()) for t, own in zip(group, found, strict=True)]
        rating_NK = np.array([own if isinstance(own, list) else (0.0, 0.0) for own in found], np.float64)
        if self.standardized and any(known):
            own_NK = rating_NK[known]
            rating_NK = (rating_NK - own_NK.mean(0)) / (own_NK.std(0) + SMALLEST)
        direction_N = [_direction(trajectory.task) for trajectory in group]
        value_N = [
            sum(v * r for v, r in zip(direction or (0.0, 0.0), ratings, strict=True))
            for direction, ratings in zip(direction_N, rating_NK.tolist(), strict=True)
        ]
        lowest = min([0.0, *(value for value, ok in zip(value_N, known, strict=True) if ok)]) - 1.0
        return [
            self._score(trajectory, score, own, value if trajectory.completion.strip() else lowest)
            for trajectory, score, own, value in zip(group, rated, found, value_N, strict=True)
        ]

    def _ratings(self, score: Score) -> list[float] | str:
        """The two ratings, or why there are none."""
        if score.status == "error":
            return score.explanation
        for name in self.axes:
            if name not in score.parts:
                return f"'{self.of.kind}' does not rate '{name}'; {nearest(name, score.parts)}"
            if score.parts[name].status == "error" or not math.isfinite(score.parts[name].value):
                return f"'{name}' could not be rated: {score.parts[name].explanation}"
        return [score.parts[name].value for name in self.axes]

    def _score(self, trajectory: Trajectory, score: Score, found: list[float] | str, value: float) -> Score:
        direction = _direction(trajectory.task)
        if isinstance(found, str):
            return failure(found)
        if direction is None:
            return failure(f"task '{trajectory.task.key}' has no direction")
        shown = " + ".join(f"{v:.2f} x {name} {r:.3g}" for v, name, r in zip(direction, self.axes, found, strict=True))
        shown = shown if trajectory.completion.strip() else "an empty text, below all others"
        return replace(score, value=value, status="ok" if value >= self.correct_at else "wrong", explanation=shown)


def _direction(task: Task) -> list[float] | None:
    """The direction of a task, if it is two finite numbers."""
    own = task.fields.get("direction")
    if not isinstance(own, (list, tuple)) or len(own) != 2:
        return None
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in own):
        return None
    return [float(v) for v in own]
