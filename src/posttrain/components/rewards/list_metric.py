"""How well the scores of a query's documents rank the relevant ones: the same number for every rollout of a list.

Source: ERank, arXiv:2509.00520: generation is pointwise, the reward is "derived from the list". The paper's metric and
how rollouts of several documents are combined could not be read; what follows is our own form of it. List j is the j-th
rollout of every document (`rollouts/pointwise`); `pairings` more lists of each rollout combine it with drawn rollouts
of the other documents, and its reward is the mean over its lists. With ``lists: joint`` a rollout is in one list of
each combination, so that the rollouts of a document differ also by their neighbours; with ``replaced`` every rollout
takes the place of its document in all lists, so that they differ by nothing but their own scores.

    reciprocal_rank   1 / rank of the first relevant document among the first `at`, 0 without one
    ndcg              sum of 1 / log2(rank + 1) over ranks of relevant documents, over the most that it can be

A rollout without an integer from 0 to 10 has the reward 0 and ranks last. ``ties: pessimistic`` puts relevant documents
behind others of an equal score; with ``optimistic`` equal scores of all documents are as good as the right order. With
`weighted` documents are ranked by s Pr(s), the score times the probability of its tokens, as the paper ranks held-out
ones; that is no expected score, and 0 for the score 0.

The field ``relevant`` of a task is a list of true and false, one for each document, or of the numbers of the relevant
ones, from 1. With ``together: query`` a task is one document, `relevant` is true or false, and tasks with the same
``query`` are a list: they are drawn and scored together, and each has a group of its own for the advantage.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rollouts import Pointwise
from posttrain.datasets.together import lists
from posttrain.errors import TaskFault
from posttrain.grading.ranked_lists import gain, ranked, reciprocal_rank
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class ListMetric(Reward):
    """Scores rollouts of documents by the ranking of their query."""

    metric: Literal["reciprocal_rank", "ndcg"] = "reciprocal_rank"
    """What is computed of a list."""
    at: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Ranks that count."""
    ties: Literal["pessimistic", "optimistic"] = "pessimistic"
    """Whether relevant documents come last or first among equals."""
    pairings: Annotated[int, Field(ge=0, le=64)] = 3
    """Lists of each rollout beside the one of equal numbers."""
    lists: Literal["joint", "replaced"] = "joint"
    """The lists of a rollout: those that it is drawn into, or all lists with it in its document's place."""
    weighted: bool = False
    """Whether documents are ranked by s Pr(s), not by s."""
    together: str | None = None
    """Field of the tasks whose documents are ranked together, a document for each task; None for all in one task."""

    @property
    def compares(self) -> bool:
        """True."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a list without a relevant document."""
        if self.together is None:
            found = ((task, _fault(task)) for task in tasks)
        else:
            found = (_list_fault(own, self.together) for own in lists(tasks, self.together, "the reward 'list_metric'"))
        for task, fault in found:
            if fault:
                raise TaskFault(task.key, f"task '{task.key}' {fault}")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Make the lists, and give each rollout the mean of its own."""
        rollouts: dict[int | str, list[int]] = {}
        for place in sorted(range(len(group)), key=lambda i: group.trajectories[i].sample):
            fact = group.trajectories[place].fact(Pointwise)
            if fact is not None:
                name = fact.document if self.together is None else group.trajectories[place].task.key
                rollouts.setdefault(name, []).append(place)
        values: dict[int, list[float]] = {}
        for number in range(self.pairings + 1 if rollouts else 0):
            rng = Random(f"list_metric:{context.seed}:{context.step}:{group.key}:{number}")
            mixed = {document: rng.sample(own, len(own)) if number else own for document, own in rollouts.items()}
            for j in range(max(map(len, mixed.values()))):
                row = {document: own[j % len(own)] for document, own in mixed.items()}
                for members, own_row in self._lists(row, rollouts):
                    value = self._value([group.trajectories[place] for place in own_row.values()])
                    for place in members:
                        values.setdefault(place, []).append(value)
        return [self._score(trajectory, values.get(i, ())) for i, trajectory in enumerate(group)]

    def _lists(
        self, row: Mapping[int | str, int], rollouts: Mapping[int | str, Sequence[int]]
    ) -> Iterator[tuple[Sequence[int], Mapping[int | str, int]]]:
        """Which rollouts get the metric of which list."""
        if self.lists == "joint":
            yield tuple(row.values()), row
            return
        for document, own in rollouts.items():
            for place in own:
                yield (place,), {**row, document: place}

    def _value(self, row: Sequence[Trajectory]) -> float:
        """The metric of one rollout of each document."""
        relevant = [_relevant(trajectory) for trajectory in row]
        ranks = ranked([self._rank(trajectory) for trajectory in row], relevant, optimistic=self.ties == "optimistic")
        return (reciprocal_rank if self.metric == "reciprocal_rank" else gain)(ranks, self.at)

    def _rank(self, trajectory: Trajectory) -> float:
        fact = trajectory.fact(Pointwise)
        if fact is None or fact.stated is None:
            return -1.0
        return fact.stated * fact.probability if self.weighted else float(fact.stated)

    def _score(self, trajectory: Trajectory, values: Sequence[float]) -> Score:
        fact = trajectory.fact(Pointwise)
        if fact is None:
            return failure("it is no rollout of one document; the reward list_metric needs the rollout 'pointwise'")
        if fault := _row_fault(trajectory.task) if self.together is not None else _fault(trajectory.task):
            return failure(f"task '{trajectory.task.key}' {fault}")
        if fact.stated is None:
            return Score(value=0.0, status="wrong", explanation="no integer from 0 to 10")
        value = sum(values) / len(values)
        name = fact.document if self.together is None else trajectory.task.key
        return Score(
            value=value,
            status="ok" if value > 1.0 - 1e-9 else "wrong",
            answer=str(fact.stated),
            explanation=f"document {name}: {fact.stated} (p {fact.probability:.2f}), {value:.3f} in its lists",
        )


def _relevant(trajectory: Trajectory) -> bool:
    fact, marked = trajectory.fact(Pointwise), _marked(trajectory.task)
    if isinstance(relevant := trajectory.task.fields.get("relevant"), bool):
        return relevant
    return fact is not None and marked is not None and fact.document < len(marked) and marked[fact.document]


def _marked(task: Task) -> Sequence[bool] | None:
    """Whether each document is relevant; None where the task does not say."""
    given, prompts = task.fields.get("relevant"), task.fields.get("prompts")
    if not isinstance(given, Sequence) or isinstance(given, str):
        return None
    if all(isinstance(own, bool) for own in given):
        return given
    count = len(prompts) if isinstance(prompts, Sequence) else 0
    if all(type(own) is int and 1 <= own <= count for own in given):
        return [number in given for number in range(1, count + 1)]
    return None


def _list_fault(tasks: Sequence[Task], field: str) -> tuple[Task, str]:
    """The first task of a list with a fault, and why there is no ranking; empty if there is one."""
    for task in tasks:
        if fault := _row_fault(task):
            return task, fault
    relevant = any(task.fields["relevant"] for task in tasks)
    return tasks[0], "" if relevant else f"and the others with its {field} have no relevant document"


def _row_fault(task: Task) -> str:
    """Why a task is not one document of a list; empty if it is."""
    given = task.fields.get("relevant")
    return "" if isinstance(given, bool) else f"has relevant {given!r:.60}, where true or false is needed"


def _fault(task: Task) -> str:
    """Why a task has no ranking; empty if it has one."""
    marked, prompts = _marked(task), task.fields.get("prompts")
    if marked is None:
        given = task.fields.get("relevant")
        return f"has relevant {given!r:.60}, where a list of true and false is needed, one for each of its prompts"
    if not any(marked):
        return "has no relevant document"
    if not isinstance(prompts, Sequence) or isinstance(prompts, str):
        return f"has {len(marked)} entries in relevant, and no list of prompts, one for each document"
    if len(prompts) != len(marked):
        return f"has {len(prompts)} prompts, and {len(marked)} entries in relevant; give one for each document"
    return ""
