"""A bonus for order: hand-worked numbers, and why it is on the advantage."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.ordered import Ordered
from posttrain.components.rollouts import Shuffled
from posttrain.types import Batch
from tests.builders import batch

ROOT = float(np.sqrt(0.75))
"""Advantage of two correct rollouts of four, of any two rewards."""


def with_copies(rows: list[list[float]], accuracies: list[float | None]) -> Batch:
    """One group a row; each has its accuracy on the copy. Scores of 1 and more are correct."""
    plain = batch(rows)
    groups = []
    for group, accuracy in zip(plain.groups, accuracies, strict=True):
        facts = () if accuracy is None else (Shuffled(accuracy=accuracy),)
        groups.append(replace(group, trajectories=tuple(replace(t, facts=facts) for t in group)))
    return replace(plain, groups=tuple(groups))


def first_tokens(advantage: Ordered | GroupMean, given: Batch) -> list[float]:
    return [float(a_T[0]) for a_T in advantage({}, given)[1].advantages]


@pytest.mark.parametrize(
    ("accuracy", "bonus"),
    [(0.5, 0.1), (0.625, 0.1), (0.63, 0.0), (1.0, 0.0), (0.0, 0.1), (None, 0.0)],  # 0.5 >= 0.8 q up to 0.625
)
def test_correct_rollouts_have_the_bonus_where_order_helps(accuracy: float | None, bonus: float) -> None:
    """Rewards 3 and -0.5, as of the paper's values with a whole form: mean 1.25, std 2.0207."""
    found = first_tokens(Ordered(), with_copies([[3.0, 3.0, -0.5, -0.5]], [accuracy]))
    assert found == pytest.approx([ROOT + bonus] * 2 + [-ROOT] * 2, abs=1e-5)


def test_on_a_reward_of_two_values_the_bonus_changes_nothing() -> None:
    given = with_copies([[3.0, 3.0, -0.5, -0.5]], [0.0])
    on_reward = first_tokens(Ordered(where="reward"), given)
    assert on_reward == pytest.approx(first_tokens(GroupMean(), given), abs=1e-5)
    three = with_copies([[3.0, 3.0, -0.5, -2.5]], [0.0])
    assert first_tokens(Ordered(where="reward"), three) != pytest.approx(first_tokens(GroupMean(), three), abs=1e-3)


def test_all_correct_and_all_wrong_groups() -> None:
    given = with_copies([[3.0, 3.0], [-0.5, -0.5]], [0.5, 0.0])
    assert first_tokens(Ordered(), given) == pytest.approx([0.1, 0.1, 0.0, 0.0])
    assert first_tokens(Ordered(where="reward"), given) == [0.0] * 4


def test_accuracies_are_compared_and_not_rewards() -> None:
    """The mean reward is negative, so that 0.8 of the copy's would be above its own."""
    found = first_tokens(Ordered(), with_copies([[3.0, -2.5, -2.5, -2.5]], [0.25]))
    plain = first_tokens(GroupMean(), with_copies([[3.0, -2.5, -2.5, -2.5]], [0.25]))
    assert np.subtract(found, plain) == pytest.approx([0.1, 0, 0, 0], abs=1e-6)


def test_metrics_are_of_tasks_with_a_copy() -> None:
    _, credit = Ordered()({}, with_copies([[3.0, -0.5], [3.0, 3.0]], [1.0, None]))
    assert credit.metrics == {"bonus_share": 0.0, "accuracy_ordered": 0.5, "accuracy_shuffled": 1.0}


def test_without_a_bonus_it_is_grpo() -> None:
    given = with_copies([[3.0, -0.5, 1.0], [0.0, 1.0]], [0.0, 0.0])
    assert first_tokens(Ordered(alpha=0.0), given) == first_tokens(GroupMean(), given)
