"""1 where a judge's scores have the best candidate strictly first, else -1.

Source: SPCT (DeepSeek-GRM), arXiv:2504.02495, equation 11, from technical notes. The judge writes principles, a
critique and a whole number for each candidate; with S its scores and b the best candidate by gold,

    1 if S[b] > S[i] for every other i, else -1        two candidates or more
    1 if S equals the label, else -1                   one candidate

A tie with the best is -1, and so are a reply without scores, one that scores another number of candidates, and a score
that is no whole number from `lowest` to `highest`. There is no reward of the format. The gold scores are the field
``gold`` of a task, by the names under which candidates are shown (`ranking_items`); where several are best by gold, the
first of them must be strictly first among those that gold ranks lower.

Differs: the last rule, for ties of the gold, is of this package.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.rankings import read_ranking
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class StrictBest(Reward):
    """Scores 1 where the best candidate alone has the largest score, and -1 otherwise."""

    lowest: Annotated[int, Field(ge=-1000, le=1000)] = 1
    """Smallest score that a judge may give."""
    highest: Annotated[int, Field(ge=-1000, le=1000)] = 10
    """Largest score that a judge may give."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without gold scores by name."""
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
        scores = read_ranking(trajectory.completion).scores
        if scores.keys() != gold.keys():
            return _minus(f"scores of {', '.join(scores) or 'nothing'}, where {', '.join(gold)} are shown")
        if any(x != int(x) or not self.lowest <= x <= self.highest for x in scores.values()):
            return _minus(f"a score is no whole number from {self.lowest} to {self.highest}")
        best = max(gold, key=lambda name: gold[name])
        if len(gold) == 1:
            right = scores[best] == gold[best]
            return _plus(f"the label, {gold[best]:g}") if right else _minus(f"the label is {gold[best]:g}")
        rivals = [name for name in gold if gold[name] < gold[best]]
        behind = [name for name in rivals if scores[name] >= scores[best]]
        return _minus(f"{best} is best, and {behind[0]} has as many points") if behind else _plus(f"{best} is first")


def _plus(why: str) -> Score:
    return Score(value=1.0, status="ok", explanation=why)


def _minus(why: str) -> Score:
    return Score(value=-1.0, status="wrong", explanation=why)


def _gold(task: Task) -> dict[str, float]:
    """The gold scores of a task. Raises `UserError`."""
    gold = task.fields.get("gold")
    if (
        isinstance(gold, Mapping)
        and gold
        and all(isinstance(x, int | float) and not isinstance(x, bool) for x in gold.values())
    ):
        return {str(name): float(x) for name, x in gold.items()}
    raise TaskFault(
        task.key,
        f"task {task.key}: gold is {gold!r:.80}, where the scores of the candidates by name are needed; take tasks of "
        "the kind ranking_items",
    )
