import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts.demonstrated import Demonstrated
from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.prefixed import Prefixed
from posttrain.errors import UserError
from posttrain.types import Group, Preference, Task
from tests.builders import ScriptedSampler

TWO = Task(key="t", prompt="2+2=", answer="4", demonstrations=("4", "four"))
NONE = Task(key="t", prompt="2+2=", answer="4")


def collect(rollout: Demonstrated | Independent, of: Task, sampler: ScriptedSampler | None = None) -> Group:
    [group] = asyncio.run(rollout.collect(of, {"policy": sampler or ScriptedSampler("policy")}))
    return group


def test_a_demonstration_is_a_member_of_the_group_that_nobody_sampled() -> None:
    group = collect(Demonstrated(n=3), TWO)
    *attempts, shown = group
    assert len(attempts) == 3
    assert not any(t.demonstrated for t in attempts)
    prompt, segment = shown.segments
    assert prompt.token_ids.tolist() == attempts[0].segments[0].token_ids.tolist()
    assert (segment.actor, segment.trained, segment.logp, segment.learner) == ("demonstration", True, None, "policy")
    assert segment.token_ids.tolist() == [ord("4"), 0], "the end token is learned too"
    assert np.isnan(shown.behavior_logp).all() and shown.num_trained == 2
    assert (shown.demonstrated, shown.completion, shown.stop_reason, shown.sample) == (True, "4", "stop", 3)


def test_rollouts_are_those_of_independent_sampling() -> None:
    alone, beside = collect(Independent(n=4), TWO), collect(Demonstrated(n=4), TWO)
    for left, right in zip(alone, list(beside)[:4], strict=True):
        assert left.token_ids.tolist() == right.token_ids.tolist()


@pytest.mark.parametrize(("demonstrations", "found"), [(0, []), (1, ["4"]), (2, ["4", "four"]), (5, ["4", "four"])])
def test_how_many_demonstrations(demonstrations: int, found: list[str]) -> None:
    group = collect(Demonstrated(n=2, demonstrations=demonstrations), TWO)
    assert [t.completion for t in group if t.demonstrated] == found
    assert len({t.sample for t in group}) == 2 + len(found)


def test_a_task_without_one_is_answered_all_the_same() -> None:
    assert [t.demonstrated for t in collect(Demonstrated(n=2), NONE)] == [False, False]


def test_one_that_does_not_fit_is_refused() -> None:
    sampler = ScriptedSampler("policy")
    sampler.context = 8
    with pytest.raises(UserError, match=r"prompt \(5 tokens\) and demonstration \(5\).*context of 8 tokens"):
        collect(Demonstrated(n=1, demonstrations=2), TWO, sampler)


@pytest.mark.parametrize("rollout", [Demonstrated(), Prefixed()], ids=lambda rollout: rollout.kind)
def test_tasks_that_are_all_without_one_are_refused(rollout: Rollout) -> None:
    rollout.check([NONE, TWO])
    with pytest.raises(UserError, match=f"the {rollout.kind} rollout needs demonstrations, but none of the 2 tasks"):
        rollout.check([NONE, NONE])


def test_the_completions_of_pairs_may_be_shown() -> None:
    pairs = tuple(Preference(chosen=f"good {i}", rejected=f"bad {i}") for i in range(2))
    of = replace(TWO, preferences=pairs)
    group = collect(Demonstrated(n=1, demonstrations=3, shown="preferences"), of)
    assert [t.completion for t in group if t.demonstrated] == ["good 0", "bad 0", "good 1"]
    assert [t.sample for t in group] == [0, 1, 2, 3]
    assert collect(Demonstrated(n=1), of).trajectories[0].token_ids.tolist() == group.trajectories[0].token_ids.tolist()
    Demonstrated(shown="preferences").check([NONE, of])
    with pytest.raises(UserError, match="the demonstrated rollout shows pairs, but none of the 2 tasks has one"):
        Demonstrated(shown="preferences").check([NONE, TWO])
