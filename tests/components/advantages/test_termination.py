"""Progress against those that answer at once: by hand, and what the sum of progress of a trace is."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from posttrain.components.advantages.termination import Termination
from posttrain.components.rollouts import Continued
from posttrain.types import Batch
from tests.builders import batch


def given(rewards: Sequence[Sequence[float]], at_once: Sequence[Sequence[bool]]) -> Batch:
    """Groups of rollouts of two tokens, some of which answer at once."""
    plain = batch([list(row) for row in rewards])
    groups = []
    for group, row in zip(plain.groups, at_once, strict=True):
        facts = [(Continued(prefix_tokens=3, at_once=own),) for own in row]
        rows = tuple(replace(t, facts=own) for t, own in zip(group, facts, strict=True))
        groups.append(replace(group, trajectories=rows))
    return replace(plain, groups=tuple(groups))


def advantages(advantage: Termination, of: Batch) -> list[float]:
    _, credit = advantage({}, of)
    assert all(len(set(own.tolist())) == 1 for own in credit.advantages)
    return [float(own[0]) for own in credit.advantages]


def test_progress_by_hand() -> None:
    """J before is (1 + 0) / 2; in the second group it is 1, and thinking on can only lose."""
    of = given([[1, 0, 1, 0], [1, 0, 1, 1]], [[False, False, True, True]] * 2)
    assert advantages(Termination(), of) == pytest.approx([0.5, -0.5, 0.5, -0.5, 0, -1, 0, 0])
    _, credit = Termination()({}, of)
    assert credit.metrics == pytest.approx({"at_once": 0.75, "progress": (0.5 - 0.5 + 0 - 1) / 4})


def test_episodes_of_keywords_alone_make_no_progress() -> None:
    """The cheat: after "Wait, let me check" as many are right as at once. The sum of progress is 0 with outcome 0."""
    of = given([[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], [[False, False, True, True]] * 3)
    _, credit = Termination()({}, of)
    assert credit.metrics["progress"] == 0.0
    assert sum(advantages(Termination(), of)) == pytest.approx(0.0)


def test_beside_the_outcome_by_hand() -> None:
    """The mean of the group is 3/4 and J before 1/2: for a right answer 2 (1/2) + 1/4."""
    of = given([[1, 1, 1, 0]], [[False, False, True, True]])
    assert advantages(Termination(alpha=2.0, outcome=1.0), of) == pytest.approx([1.25, 1.25, 1.25, -1.75])


def test_equal_rewards_and_groups_without_a_baseline() -> None:
    assert advantages(Termination(scale="group"), given([[1, 1, 1]], [[False, True, True]])) == [0.0, 0.0, 0.0]
    assert advantages(Termination(), batch([[1, 0]])) == [0.5, -0.5]
    scaled = advantages(Termination(scale="group"), given([[1, 0]], [[False, True]]))
    assert scaled == pytest.approx([2**0.5, 0.0], abs=1e-4)


def test_the_sum_of_progress_of_a_trace_is_an_outcome() -> None:
    """J after the prompt, two episodes and three: sums differ by J at the end alone, so their order is the outcome's.

    By episode they do not: the second trace loses in its last episode what it gained before.
    """
    traces = [[0.2, 0.5, 0.9, 1.0], [0.2, 0.8, 1.0, 0.0], [0.2, 0.2, 0.2, 1.0]]
    steps = [[b - a for a, b in pairwise(j)] for j in traces]
    sums, ends = [sum(own) for own in steps], [j[-1] for j in traces]
    mean_sum, mean_end = sum(sums) / 3, sum(ends) / 3
    assert [s - mean_sum for s in sums] == pytest.approx([e - mean_end for e in ends])
    assert steps[1][0] > 0 > steps[1][2] and steps[2][0] == 0.0
