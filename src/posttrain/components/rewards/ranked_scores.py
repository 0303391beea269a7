"""Whether a judge's scores of several candidates are in the order of the gold scores, and well formed.

Source: RewardAnything, arXiv:2506.03318, and its release (processing.py); `posttrain.grading.rankings` has both parts.
The gold scores are the field ``gold`` of a task, by the names under which the candidates are shown (`ranking_items`).

    value = (order + weight * format) / (1 + weight)

``measure: best`` has in place of the order 1 where the best candidate alone has the largest score, and 0 otherwise.

Differs: the weight of the format is not published. A reply that scores fewer than two of the candidates has the order
reward 0, where the release gives 1, so that an empty reply is rewarded most. With `complete` that holds for a reply
that leaves out any candidate; the release takes off a part of the format's share. The release stops with an error where
both keys are there; the agreement of order and scores is of this package.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.rankings import best_reward, format_reward, order_reward, read_ranking
from posttrain.types import Group, Score, Task, Trajectory

MEASURES = {"order": order_reward, "best": best_reward}


@frozen
class RankedScores(Reward):
    """Scores the order of a judge's scores, and the form of its reply, in [0, 1]."""

    measure: Literal["order", "best"] = "order"
    """What is right: the order of all pairs, or the best candidate alone."""
    weight: NonNegativeFloat = 0.25
    """Of the format beside the order."""
    complete: bool = True
    """Whether every candidate must have a score."""
    correct_at: float = 0.999
    """Smallest order reward that counts as correct: all pairs in order."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without gold scores of at least two names."""
        for task in tasks:
            _gold(task)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read each reply."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        try:
            gold = _gold(trajectory.task)
        except UserError as error:
            return failure(str(error))
        ranking = read_ranking(trajectory.completion)
        missing = [name for name in gold if name not in ranking.scores]
        order = None if missing and self.complete else MEASURES[self.measure](ranking.scores, gold)
        form = format_reward(ranking, [*gold])
        value = ((order or 0.0) + self.weight * form) / (1 + self.weight)
        parts = {"order": _part(order or 0.0, self.correct_at), "format": _part(form, self.correct_at)}
        right = order is not None and order >= self.correct_at
        why = f"order {order:.2f}" if order is not None else f"no score of {', '.join(missing) or 'two candidates'}"
        explanation = f"{why}; format {form:.2f}"
        return Score(value=value, status="ok" if right else "wrong", explanation=explanation, parts=parts)


def _part(value: float, correct_at: float) -> Score:
    return Score(value=value, status="ok" if value >= correct_at else "wrong")


def _gold(task: Task) -> dict[str, float]:
    """The gold scores of a task. Raises `UserError`."""
    gold = task.fields.get("gold")
    if isinstance(gold, Mapping) and len(gold) > 1 and all(_is_number(x) for x in gold.values()):
        return {str(name): float(x) for name, x in gold.items()}
    raise TaskFault(
        task.key,
        f"task {task.key}: gold is {gold!r:.80}, where the scores of at least two candidates by name are needed; take "
        "tasks of the kind ranking_items",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
