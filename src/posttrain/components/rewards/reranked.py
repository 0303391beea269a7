"""The order in which a completion lists numbered passages: NDCG and recall of relevant ones, overlap with a teacher.

    <think>...</think><answer>[2] > [4] > [1] > [3]</answer>

Source: ReasonRank, arXiv:2508.07050, and its release (8421BCD/ReasonRank at 06721fd6, ranking.py). The field
``relevant`` of a task has the numbers of its relevant passages, ``order`` the teacher's order of all of them.

    value = NDCG@10 + 0.2 recall@10 + 0.1 average overlap      at most 1.3
            0 where the answer is no order of the passages, -1 without the four tags in this order

A completion is correct where every relevant passage comes before the others. The three parts are recorded.

Differs: the answer must be the numbers 1 to n, each once, with nothing but brackets, commas and ``>`` between them.
Without `strict` it is read as in the release: every digit counts, also in words, and as many different numbers as the
teacher has are an order; numbers above n take a place in the overlap only, and 0 stands for the last passage.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.ranked_lists import answer_of, average_overlap, is_order, is_plain, ndcg, read_ids, recall
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class Reranked(Reward):
    """Scores a permutation of passages."""

    recall: NonNegativeFloat = 0.2
    """Weight of the share of relevant passages among the first `at`."""
    overlap: NonNegativeFloat = 0.1
    """Weight of the average overlap with the teacher's order."""
    at: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Ranks that NDCG and recall count."""
    strict: bool = True
    """Whether the answer must be the numbers alone, each once."""
    no_tags: float = -1.0
    """Value without the four tags."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without relevant passages or an order of all passages."""
        for task in tasks:
            truth_of(task)

    def gold(self, task: Task) -> Gold | None:
        """The order of the answer between the tags; without an answer the teacher's, relevant passages first."""
        relevant, order = truth_of(task)
        best = sorted(order, key=lambda number: number not in relevant)
        answer = task.answer or " > ".join(f"[{number}]" for number in best)
        return Gold(answer=answer, form="<think>so</think><answer>{answer}</answer>")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read each order."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        try:
            relevant, teacher = truth_of(trajectory.task)
        except UserError as error:
            return failure(str(error))
        answer = answer_of(trajectory.completion)
        if answer is None:
            return Score(
                value=self.no_tags, status="wrong", explanation="no <think>...</think><answer>...</answer>", parts=_NONE
            )
        ids, count = read_ids(answer), len(teacher)
        if self.strict:
            valid = is_plain(answer) and is_order(ids, count)
        else:
            valid = len(ids) == count and len(set(ids)) == len(set(teacher))
        if not valid:
            return Score(value=0.0, status="wrong", explanation=f"no order of {count} passages", parts=_NONE)
        ranked = [count if own == 0 else own for own in ids if own <= count]
        values = {
            "ndcg": ndcg(ranked, relevant, self.at),
            "recall": recall(ranked, relevant, self.at),
            "overlap": average_overlap(ids, teacher),
        }
        value = values["ndcg"] + self.recall * values["recall"] + self.overlap * values["overlap"]
        right = set(ranked[: len(relevant)]) == relevant
        return Score(
            value=value,
            status="ok" if right else "wrong",
            answer=" ".join(map(str, ids)),
            explanation=", ".join(f"{name} {own:.3f}" for name, own in values.items()),
            parts={name: Score(value=own, status="ok" if own == 1.0 else "wrong") for name, own in values.items()},
        )


_NONE: Mapping[str, Score] = {name: Score(value=0.0, status="wrong") for name in ("ndcg", "recall", "overlap")}


def truth_of(task: Task) -> tuple[Set[int], list[int]]:
    """The relevant passages of a task and the teacher's order. Raises `UserError`."""
    relevant, order = _numbers(task.fields.get("relevant")), _numbers(task.fields.get("order"))
    if not order or not is_order(order, len(order)):
        got = f"order is {task.fields.get('order')!r:.80}"
    elif not relevant or not set(relevant) <= set(order):
        got = f"relevant is {task.fields.get('relevant')!r:.80}"
    else:
        return set(relevant), order
    raise TaskFault(
        task.key,
        f"task {task.key}: {got}, where order must have the numbers of all passages from 1, each once, the best first, "
        "and relevant some of them; leave out queries without a relevant passage",
    )


def _numbers(given: Any) -> list[int]:
    """A list of whole numbers; empty for anything else."""
    if not isinstance(given, list | tuple) or not all(isinstance(x, int) and not isinstance(x, bool) for x in given):
        return []
    return list(given)
