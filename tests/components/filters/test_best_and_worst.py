from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.types import Group
from tests.builders import group


def rewards(groups: list[Group]) -> list[list[float]]:
    return [g.rewards.tolist() for g in groups]


def test_the_highest_and_the_lowest_stay_in_their_order() -> None:
    _, kept, dropped = BestAndWorst()({}, [group([0.5, 0.1, 0.9, 0.3]), group([2.0, 1.0])])
    assert rewards(kept) == [[0.1, 0.9], [2.0, 1.0]]
    assert kept[0].pool == (0.5, 0.1, 0.9, 0.3), "for advantages that compare with all of them"
    assert [(item.group.rewards.tolist(), item.reason) for item in dropped] == [
        ([0.5, 0.3], "neither the best nor the worst")
    ]


def test_the_second_best_can_be_what_the_best_is_compared_with() -> None:
    _, kept, dropped = BestAndWorst(against="second")({}, [group([0.5, 0.1, 0.9, 0.3])])
    assert rewards(kept) == [[0.5, 0.9]]
    assert dropped[0].reason == "neither the best nor the second"


def test_of_equals_the_first_is_taken() -> None:
    _, kept, _ = BestAndWorst()({}, [group([0.0, 1.0, 0.0, 1.0])])
    assert [[t.sample for t in g] for g in kept] == [[0, 1]]


def test_ties_are_left_out_whole() -> None:
    _, kept, dropped = BestAndWorst()({}, [group([0.5, 0.5, 0.5 + 1e-9])])
    assert not kept
    assert len(dropped[0].group) == 3
    _, kept, _ = BestAndWorst(against="second")({}, [group([1.0, 1.0, 0.0])])
    assert not kept


@pytest.mark.parametrize(("margin", "survives"), [(0.0, True), (0.2, True), (0.25, False)])
def test_margin(margin: float, survives: bool) -> None:
    _, kept, dropped = BestAndWorst(margin=margin)({}, [group([0.5, 0.75])])
    assert bool(kept) == survives
    assert survives or dropped[0].reason == "the best is 0.25 above the worst, no more than 0.25"


def test_incomplete_groups_are_left_out() -> None:
    _, kept, dropped = BestAndWorst(min_rollouts=4)({}, [group([0.0, 1.0, 2.0]), group([0.0, 1.0, 2.0, 3.0])])
    assert rewards(kept) == [[0.0, 3.0]]
    assert dropped[0].reason == "3 rollouts, fewer than 4"
    _, kept, dropped = BestAndWorst()({}, [group([1.0])])
    assert not kept and dropped[0].reason == "1 rollouts, fewer than 2"


def test_a_random_other_is_any_other_with_the_same_chance() -> None:
    """Over 2000 groups of five that differ in what was sampled: 500 each, and a std of 19 (binomial)."""
    attempts = group([0.5, 0.1, 0.9, 0.3, 0.2])
    counts: Counter[int] = Counter()
    for seed in range(2000):
        ids = np.random.default_rng(seed).integers(100, size=4)
        written = replace(attempts.trajectories[0].segments[1], token_ids=ids)
        first = replace(attempts.trajectories[0], segments=(attempts.trajectories[0].segments[0], written))
        these = replace(attempts, trajectories=(first, *attempts.trajectories[1:]))
        _, [pair], [dropped] = BestAndWorst(against="random")({}, [these])
        assert len(pair) == 2 and 0.9 in pair.rewards
        assert dropped.reason == "neither the best nor the random other"
        counts[next(t.sample for t in pair if t.sample != 2)] += 1
    assert sorted(counts) == [0, 1, 3, 4]
    assert all(abs(count - 500) < 5 * 19 for count in counts.values())


def test_the_same_rollouts_give_the_same_choice() -> None:
    groups = [group([0.5, 0.1, 0.9, 0.3], key=f"task-{i}") for i in range(20)]
    random = BestAndWorst(against="random")
    once, again = (rewards(random({}, groups)[1]) for _ in range(2))
    assert once == again and len({tuple(pair) for pair in once}) == 3, "groups choose by themselves"


def test_without_a_margin_every_group_is_kept() -> None:
    every = [group([0.5, 0.5, 0.5]), group([0.0, 1.0]), group([2.0])]
    _, kept, dropped = BestAndWorst(margin=None, min_rollouts=1)({}, every)
    assert [[t.sample for t in g] for g in kept] == [[0, 1], [0, 1], [0]], "the first two of equals; one alone"
    assert [len(item.group) for item in dropped] == [1]
    _, kept, _ = BestAndWorst(margin=None, min_rollouts=1, against="random")({}, [group([0.5, 0.5]), group([2.0])])
    assert [len(g) for g in kept] == [2, 1]
    _, kept, _ = BestAndWorst(min_rollouts=1)({}, [group([2.0])])
    assert not kept, "a margin wants two"
