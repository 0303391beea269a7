import asyncio

import numpy as np
import pytest

from posttrain.components.rollouts.renoised import Renoised
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.types import Group
from tests.builders import ScriptedSampler, task
from tests.flows import made_flow


def collect(rollout: Renoised, key: int = 0, steps: int = 14) -> Group:
    sampler = Native().serve(made_flow(steps=steps), 0).bind(key)
    (group,) = asyncio.run(rollout.collect(task(), {"policy": sampler}))
    return group


def test_draws_are_trained_and_the_chain_is_not() -> None:
    group = collect(Renoised(n=5))
    assert len(group) == 5
    for attempt in group:
        prompt, chain, draws = attempt.segments
        assert not prompt.trained and not chain.trained and draws.trained
        assert attempt.num_trained == 6 and draws.learner == "policy"
        assert not attempt.demonstrated, "it is an attempt of the policy's own"
        assert np.isnan(attempt.behavior_logp).all()


def test_places_are_stratified_from_the_second_to_the_last_tenth() -> None:
    for attempt in collect(Renoised(n=20)):
        places = attempt.segments[-1].token_ids - 16
        assert (np.diff(places) >= 0).all() and places.min() >= 1 and places.max() <= 11
        assert [min(int((p - 1) / (11 / 6)), 5) for p in places] == pytest.approx([0, 1, 2, 3, 4, 5], abs=1)


def test_noise_is_each_samples_own_and_a_function_of_the_key() -> None:
    first, again, other = collect(Renoised(n=2)), collect(Renoised(n=2)), collect(Renoised(n=2), key=1)
    noise = [t.segments[-1].vectors for g in (first, again, other) for t in g]
    assert np.array_equal(noise[0], noise[2]) and np.array_equal(noise[1], noise[3])  # type: ignore[arg-type]
    assert not np.array_equal(noise[0], noise[1]) and not np.array_equal(noise[0], noise[4])  # type: ignore[arg-type]


def test_a_flow_of_one_step_has_its_only_place() -> None:
    assert {int(i) for t in collect(Renoised(n=2), steps=1) for i in t.segments[-1].token_ids} == {3}


def test_text_is_refused() -> None:
    with pytest.raises(UserError, match="is for flows"):
        asyncio.run(Renoised(sampling=Sampling()).collect(task(), {"policy": ScriptedSampler("a")}))


def test_another_role_may_sample_what_the_policy_learns_from() -> None:
    own, slow = (Native().serve(made_flow(steps=4, dims=dims), 0).bind(0) for dims in (2, 3))
    rollout = Renoised(n=2, role="average")
    assert rollout.roles == {"average"}
    (group,) = asyncio.run(rollout.collect(task(), {"policy": own, "average": slow}))
    assert all(t.segments[-1].learner == "policy" and t.segments[-1].vectors.shape[1] == 3 for t in group)  # type: ignore[union-attr]
