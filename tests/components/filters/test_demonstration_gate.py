from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.filters.demonstration_gate import DemonstrationGate
from posttrain.types import Group, Segment
from tests.builders import group


def taught(rewards: list[float], key: str = "task") -> Group:
    """Rollouts with these scores, and a demonstration that is right."""
    attempts = group([*rewards, 1.0], key=key)
    *own, last = attempts.trajectories
    shown = Segment(actor="demonstration", token_ids=np.arange(3), trained=True, text="shown")
    return replace(attempts, trajectories=(*own, replace(last, segments=(last.segments[0], shown))))


def sizes(groups: list[Group]) -> list[tuple[int, bool]]:
    return [(len(g), all(t.demonstrated for t in g)) for g in groups]


def test_only_tasks_without_a_correct_rollout_are_imitated() -> None:
    groups = [taught([0, 0, 0]), taught([0, 1, 0]), taught([1, 1, 1])]
    state, kept, dropped = DemonstrationGate()({}, groups)
    assert sizes(kept) == [(1, True), (3, False), (3, False)]
    assert sizes([item.group for item in dropped]) == [(3, False), (1, True), (1, True)]
    assert "0% of the rollouts are correct: the demonstration is imitated" in dropped[0].reason
    assert "33% of the rollouts are correct: the demonstration is not needed" in dropped[1].reason
    assert state == {}


@pytest.mark.parametrize(("right", "imitated"), [(0, True), (1, True), (2, True), (3, False), (8, False)])
def test_the_threshold_is_a_share_and_belongs_to_imitation(right: int, imitated: bool) -> None:
    """gamma = 0.25 of 8 rollouts: 2 correct ones are still too few. The demonstration is no rollout."""
    _, [kept], _ = DemonstrationGate(threshold=0.25)({}, [taught([1.0] * right + [0.0] * (8 - right))])
    assert all(t.demonstrated for t in kept) == imitated


def test_without_a_demonstration_the_rollouts_are_kept() -> None:
    alone = group([0, 0])
    only = replace(taught([0]), trajectories=taught([0]).trajectories[1:])
    _, kept, dropped = DemonstrationGate()({}, [alone, only])
    assert kept == [alone, only]
    assert not dropped
