import asyncio
import math

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.prefixed import Prefixed
from posttrain.types import Group, Task
from tests.builders import ScriptedSampler, info_of

SHOWN = "a demonstration of forty letters, or so."
TASK = Task(key="t", prompt="2+2=", answer="4", demonstrations=(SHOWN,))


def collect(rollout: Prefixed | Independent, of: Task = TASK, key: str = "policy") -> Group:
    [group] = asyncio.run(rollout.collect(of, {"policy": ScriptedSampler(key)}))
    return group


@pytest.mark.parametrize(
    ("progress", "low"), [(0.0, 0.95), (0.5, 0.5), (1.0, 0.05), (0.25, 0.05 + 0.9 * (1 + math.sqrt(0.5)) / 2)]
)
def test_the_low_end_falls_along_a_cosine_and_the_high_one_stays(progress: float, low: float) -> None:
    then = Prefixed().at(progress)
    assert (then.low, then.high) == (pytest.approx(low), 0.95)


def test_a_hybrid_begins_with_the_demonstration_and_the_policy_goes_on() -> None:
    *ordinary, hybrid = collect(Prefixed(n=4, low=0.5, high=0.5))
    assert [t.demonstrated for t in ordinary] == [False] * 3
    _, given, rest = hybrid.segments
    assert [s.actor for s in hybrid.segments] == ["prompt", "demonstration", "policy"]
    assert given.token_ids.tolist() == list(SHOWN[:20].encode()), "half of forty letters and an end token"
    assert given.text == SHOWN[:20] and given.logp is None and given.trained
    assert np.isnan(hybrid.behavior_logp[:20]).all() and np.isfinite(hybrid.behavior_logp[20:]).all()
    assert hybrid.num_trained == 20 + len(rest)
    assert hybrid.completion == given.text + rest.text
    assert info_of(hybrid) == {"prefix_tokens": 20, "prefix_share": 0.5}
    assert [t.sample for t in (*ordinary, hybrid)] == [0, 1, 2, 3]


def test_ordinary_rollouts_are_those_of_independent_sampling() -> None:
    for left, right in zip(list(collect(Prefixed(n=4)))[:3], collect(Independent(n=4)), strict=False):
        assert left.token_ids.tolist() == right.token_ids.tolist()


def test_the_given_part_may_be_a_mere_hint() -> None:
    *_, hybrid = collect(Prefixed(n=2, trained=False))
    assert not hybrid.segments[1].trained
    assert np.isfinite(hybrid.behavior_logp).all()


def test_shares_are_drawn_all_over_the_window() -> None:
    shares = [info_of(collect(Prefixed(n=1, low=0.2, high=0.6), key=str(i)).trajectories[0])["prefix_share"]
              for i in range(300)]  # fmt: skip
    assert 0.2 <= min(shares) < 0.22 and 0.58 < max(shares) <= 0.6
    assert np.mean(shares) == pytest.approx(0.4, abs=0.02)


def test_two_hybrids_are_drawn_apart() -> None:
    *_, first, second = collect(Prefixed(n=4, hybrids=2, low=0.05))
    assert info_of(first)["prefix_share"] != info_of(second)["prefix_share"]


@pytest.mark.parametrize(("share", "given"), [(0.0, 1), (0.01, 1), (1.0, 40), (0.95, 38)])
def test_something_is_given_and_something_is_left_to_write(share: float, given: int) -> None:
    """The end token, the forty-first, is never given."""
    *_, hybrid = collect(Prefixed(n=1, low=share, high=share))
    assert len(hybrid.segments[1]) == given


def test_what_does_not_fit_is_cut() -> None:
    sampler = ScriptedSampler("policy")
    sampler.context = 5 + 10 + 1
    [group] = asyncio.run(Prefixed(n=1, low=0.9, high=0.9).collect(TASK, {"policy": sampler}))
    assert len(group.trajectories[0].segments[1]) == 10


def test_any_of_several_demonstrations() -> None:
    several = Task(key="t", prompt="2+2=", demonstrations=("aaaa", "bbbb", "cccc"))
    first = {collect(Prefixed(n=1), several, key=str(i)).trajectories[0].completion[0] for i in range(40)}
    assert first == {"a", "b", "c"}


def test_a_task_without_one_is_answered_without_help() -> None:
    bare = Task(key="t", prompt="2+2=", answer="4")
    assert [t.demonstrated for t in collect(Prefixed(n=3), bare)] == [False] * 3


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValidationError, match="low is above high"):
        Prefixed(low=0.9, high=0.5)
