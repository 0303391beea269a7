"""Rewards of lists: the sheet's numbers, ties, documents without a score, s Pr(s), pairings."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.rollouts import Pointwise
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task, Trajectory
from tests.builders import trajectory

PLAIN = ListMetric(pairings=0)


def query(*relevant: bool) -> Task:
    return Task(key="q", prompt="q", fields={"prompts": ["p"] * len(relevant), "relevant": list(relevant)})


def rollout(of: Task, document: int, stated: int | None, probability: float = 1.0, sample: int = 0) -> Trajectory:
    base = trajectory(of=of, sample=sample)
    fact = Pointwise(document=document, stated=stated, probability=probability)
    return Trajectory(task=of, segments=base.segments, stop_reason="stop", sample=sample, facts=(fact,))


def scores(reward: ListMetric, *rollouts: Trajectory, step: int = 0) -> list[Score]:
    group = Group(key="q", trajectories=rollouts)
    return list(asyncio.run(reward.score(group, RewardContext(step=step))))


def values(reward: ListMetric, stated: list[int | None], relevant: list[bool]) -> list[float]:
    of = query(*relevant)
    return [s.value for s in scores(reward, *(rollout(of, i, s, sample=i) for i, s in enumerate(stated)))]


def test_the_numbers_of_the_sheet() -> None:
    """A positive with 7 over 5 and 3 is first; with 4 it is second, and the unchanged neighbours have its reward."""
    marked = [True, False, False]
    assert values(PLAIN, [7, 5, 3], marked) == [1.0] * 3
    assert values(PLAIN, [4, 5, 3], marked) == [0.5] * 3
    assert values(ListMetric(pairings=0, metric="ndcg"), [4, 5, 3], marked) == pytest.approx([1 / math.log2(3)] * 3)
    two = [True, False, True]
    best = 1 + 1 / math.log2(3)
    assert values(ListMetric(pairings=0, metric="ndcg"), [9, 5, 1], two) == pytest.approx([1.5 / best] * 3)


def test_ties_count_against_the_relevant_document() -> None:
    marked = [True, False, False]
    assert values(PLAIN, [5, 5, 5], marked) == pytest.approx([1 / 3] * 3)
    assert values(ListMetric(pairings=0, ties="optimistic"), [5, 5, 5], marked) == [1.0] * 3


def test_what_states_no_score_ranks_last_and_has_none() -> None:
    assert values(PLAIN, [None, 0, 0], [True, False, False]) == pytest.approx([0.0, 1 / 3, 1 / 3])
    assert values(PLAIN, [0, None, 0], [True, False, False]) == [0.5, 0.0, 0.5]
    assert values(ListMetric(pairings=0, at=2), [0, 5, 5], [True, False, False]) == [0.0] * 3


def test_weights_break_ties_by_confidence() -> None:
    """s Pr(s): 5 x .9 is above 5 x .8 and 8 x .5, not above 8 x .6; a score of 0 is 0 whatever its probability."""
    of = query(True, False)

    def first(own: tuple[int, float], other: tuple[int, float]) -> bool:
        rows = (rollout(of, 0, *own), rollout(of, 1, *other, sample=1))
        return scores(ListMetric(pairings=0, weighted=True), *rows)[0].status == "ok"

    assert first((5, 0.9), (5, 0.8)) and first((5, 0.9), (8, 0.5)) and not first((5, 0.9), (8, 0.6))
    assert not first((0, 1.0), (0, 0.1))


def test_a_reward_is_the_mean_over_pairings() -> None:
    """Two rollouts of each: 7 and 4 for the positive, 5 twice for the other; the reward of a positive is its own."""
    of = query(True, False)
    rows = [rollout(of, d, s, sample=i) for i, (d, s) in enumerate([(0, 7), (0, 4), (1, 5), (1, 5)])]
    for step in range(4):
        found = [s.value for s in scores(ListMetric(pairings=8), *rows, step=step)]
        assert found[:2] == [1.0, 0.5] and sum(found[2:]) == pytest.approx(1.5)
        assert all(0.5 <= value <= 1.0 for value in found[2:])
        again = scores(ListMetric(pairings=8), *rows[::-1], step=step)
        assert [s.value for s in again][::-1] == found, "the order of the group does not matter"
    assert [s.value for s in scores(PLAIN, *rows)] == [1.0, 0.5, 1.0, 0.5]


def test_replaced_lists_give_the_rollouts_of_a_document_the_same_neighbours() -> None:
    """7 and 4 for the positive, 5 and 6 for the other: 7 is first in both lists, 4 in none, and 5 and 6 in one each."""
    of = query(True, False)
    rows = [rollout(of, d, s, sample=i) for i, (d, s) in enumerate([(0, 7), (0, 4), (1, 5), (1, 6)])]
    reward = ListMetric(pairings=0, lists="replaced")
    assert [s.value for s in scores(reward, *rows)] == [1.0, 0.5, 0.75, 0.75]
    assert [s.value for s in scores(PLAIN, *rows)] == [1.0, 0.5, 1.0, 0.5], "by its neighbour alone"
    more = [s.value for s in scores(ListMetric(lists="replaced"), *rows)]
    assert more[:2] == [1.0, 0.5] and more[2] == more[3]


def documents(*relevant: bool, query: str = "q") -> list[Task]:
    """A task for each document of a query."""
    rows = enumerate(relevant)
    return [Task(key=f"{query}{n}", prompt="p", fields={"query": query, "relevant": own}) for n, own in rows]


@pytest.mark.parametrize("metric", ["reciprocal_rank", "ndcg"])
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("lists", ["joint", "replaced"])
def test_a_document_for_each_task_has_the_reward_of_all_in_one(metric: Any, ties: Any, lists: Any) -> None:
    """Two rollouts of each of four documents, with ties, one without a score."""
    marks, stated = [True, False, False, True], [[5, 7], [5, 5], [None, 7], [0, 5]]
    settings: Any = {"metric": metric, "ties": ties, "lists": lists, "weighted": metric == "ndcg"}
    whole, rows = query(*marks), documents(*marks)
    one = [rollout(whole, d, s, 0.9, sample=2 * d + j) for d, own in enumerate(stated) for j, s in enumerate(own)]
    each = [rollout(rows[d], 0, s, 0.9, sample=j) for d, own in enumerate(stated) for j, s in enumerate(own)]
    wanted = [score.value for score in scores(ListMetric(**settings), *one)]
    assert [score.value for score in scores(ListMetric(together="query", **settings), *each)] == wanted
    assert len(set(wanted)) > 2


def test_ties_hold_for_a_document_for_each_task() -> None:
    """A constant 5 has 1 / 3 whatever the documents are called and where they stand; optimistic ties 1."""
    for marks in ([True, False, False], [False, True, False], [False, False, True]):
        for name in "az":
            rows = [replace(task, key=f"{name}{task.key}{n % 2}") for n, task in enumerate(documents(*marks))]
            same = [rollout(task, 0, 5) for task in rows]
            reward = ListMetric(pairings=0, together="query")
            assert [score.value for score in scores(reward, *same)] == pytest.approx([1 / 3] * 3)
            assert [score.value for score in scores(replace(reward, ties="optimistic"), *same)] == [1.0] * 3


def test_a_document_for_each_task_is_marked() -> None:
    reward = ListMetric(together="query")
    reward.check([*documents(True, False), *documents(False, True, query="r")])
    with pytest.raises(UserError, match="task 'r0' and the others with its query have no relevant document"):
        reward.check([*documents(True, False), *documents(False, False, query="r")])
    with pytest.raises(UserError, match="has relevant 'yes', where true or false is needed"):
        reward.check([Task(key="q", prompt="q", fields={"query": "q", "relevant": "yes"})])
    with pytest.raises(UserError, match="has no field 'query'"):
        reward.check([Task(key="q", prompt="q", fields={"relevant": True})])
    [score] = scores(reward, rollout(Task(key="q", prompt="q", fields={"query": "q"}), 0, 5))
    assert score.status == "error"


def test_refuses_tasks_without_a_relevant_document() -> None:
    for fields in ({}, {"relevant": [False]}, {"relevant": "yes"}, {"relevant": [1, 0]}, {"relevant": [True]}):
        with pytest.raises(UserError, match="relevant"):
            PLAIN.check([Task(key="q", prompt="q", fields=fields)])
    assert scores(PLAIN, trajectory(of=query(True)))[0].status == "error"
    assert scores(PLAIN, rollout(Task(key="q", prompt="q"), 0, 5))[0].status == "error"
    PLAIN.check([query(True, False)])
