"""The best conversation of each of the better tasks."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from posttrain.components.filters.best_conversations import BestConversations
from posttrain.components.rollouts import Exchange
from posttrain.types import Group
from tests.builders import group


def talks(rewards: list[float], key: str = "task") -> Group:
    """Two rollouts of each conversation."""
    own = group([r for r in rewards for _ in range(2)], key=key)
    facts = [Exchange(exchange=i // 2, turns=(), tokens=9, agreed="") for i in range(len(own))]
    return replace(own, trajectories=tuple(replace(t, facts=(f,)) for t, f in zip(own, facts, strict=True)))


def test_both_rollouts_of_the_best_conversation_stay() -> None:
    _, [kept], [dropped] = BestConversations(ranks=(0.0, 1.0))({}, [talks([0.6, 0.9, 0.7])])
    assert kept.rewards.tolist() == [0.9, 0.9] and len(dropped.group) == 4
    assert {t.fact(Exchange) for t in kept} == {Exchange(exchange=1, turns=(), tokens=9, agreed="")}


def test_tasks_are_ranked_by_their_best_and_the_floor_holds() -> None:
    best = [0.6, 1.0, 0.9, 0.8, 0.7, 0.4, 0.3, 0.2, 0.1, 0.0]
    groups = [talks([value, -1.0], key=str(i)) for i, value in enumerate(best)]
    _, kept, dropped = BestConversations()({}, groups)
    assert [g.key for g in kept] == ["0", "1", "2", "3", "4"], "of the seven best, those from .5 on"
    assert sum(len(d.group) for d in dropped) + sum(map(len, kept)) == 40
    _, kept, _ = BestConversations(ranks=(0.1, 0.8))({}, groups)
    assert [g.key for g in kept] == ["0", "2", "3", "4"], "the very best is left out"


def test_other_rollouts_count_one_by_one() -> None:
    _, [kept], _ = BestConversations()({}, [group([0.2, 0.8])])
    assert kept.rewards.tolist() == [0.8]
    with pytest.raises(ValidationError, match="smaller one"):
        BestConversations(ranks=(0.5, 0.5))
