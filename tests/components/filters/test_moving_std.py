import json

import pytest

from posttrain.components.filters import State
from posttrain.components.filters.moving_std import MovingStd
from posttrain.types import Group
from tests.builders import group

ROOT2 = 2**0.5


def spread(std: float) -> Group:
    """Two rollouts with this std: of rewards 0 and d it is d / sqrt(2)."""
    return group([0.0, std * ROOT2])


def after(member: MovingStd, *steps: list[float]) -> State:
    state = member.start()
    for stds in steps:
        state, kept, dropped = member(state, [spread(d) for d in stds])
        assert len(kept) == len(stds) and not dropped
    return state


def kept_of(member: MovingStd, state: State, stds: list[float]) -> list[float]:
    _, kept, _ = member(state, [spread(d) for d in stds])
    return [round(float(g.rewards[1]) / ROOT2, 6) for g in kept]


def test_everything_is_kept_for_ten_steps_and_the_average_starts_with_the_last_five() -> None:
    """Steps 1 to 5 have an std of 100; steps 6 to 10 of 1 to 5 on average, each in two groups."""
    member = MovingStd()
    state = after(member, *[[100.0]] * 5, *[[m - 0.5, m + 0.5] for m in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert state["average"] == pytest.approx(3.0)
    assert kept_of(member, state, [0.0, 1.49, 1.51, 9.0]) == [1.51, 9.0]


def test_then_it_moves_by_a_hundredth_of_the_step_before_and_dropped_groups_count() -> None:
    member = MovingStd()
    state = after(member, *[[2.0]] * 10)
    state, kept, dropped = member(state, [spread(0.0), spread(8.0)])
    assert (len(kept), len(dropped)) == (1, 1)
    assert "the std of the rewards is 0, below 0.5 of the moving average 2" in dropped[0].reason
    assert state["average"] == pytest.approx(0.99 * 2 + 0.01 * 4)
    state, *_ = member(state, [spread(1.0)])
    assert state["average"] == pytest.approx(0.99 * 2.02 + 0.01 * 1)


def test_equal_rewards_go_once_there_is_an_average() -> None:
    member = MovingStd(warmup=1, window=1)
    assert len(member(member.start(), [group([0.3, 0.3])])[1]) == 1
    state = after(member, [1.0])
    _, kept, dropped = member(state, [group([0.3, 0.3]), group([1.0])])
    assert not kept and len(dropped) == 2, "and the std of a single rollout is 0"


def test_beta_and_decay() -> None:
    strict = MovingStd(beta=1.0, decay=0.0, warmup=2, window=1)
    state = after(strict, [7.0], [3.0])
    assert kept_of(strict, state, [2.9, 3.1]) == [3.1]
    state, *_ = strict(state, [spread(5.0)])
    assert state["average"] == pytest.approx(5.0)


def test_a_step_without_groups_changes_no_average() -> None:
    member = MovingStd(warmup=1, window=1)
    empty = member(member.start(), [])[0]
    assert empty["average"] is None
    assert len(member(empty, [spread(0.0)])[1]) == 1, "there is nothing to compare with yet"
    state = after(member, [2.0])
    assert member(state, [])[0]["average"] == state["average"]
    assert json.loads(json.dumps(state)) == state
