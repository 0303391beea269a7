import asyncio
from collections import Counter

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.guided import Guided
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.types import Group, Task
from tests.builders import ScriptedSampler, info_of

TASK = Task(key="t", prompt="2+2=", answer="4")


def collect(rollout: Guided | Independent, key: str = "0") -> Group:
    samplers = {"policy": ScriptedSampler(f"policy{key}"), "guide": ScriptedSampler(f"guide{key}")}
    [group] = asyncio.run(rollout.collect(TASK, samplers))
    return group


def rolled_in(role: str, sample: int, key: str = "0") -> list[int]:
    """The whole roll-in of a rollout."""
    sampler = ScriptedSampler(f"{role}{key}").bind("n", sample)
    prompt = sampler.prompt(TASK)
    return asyncio.run(sampler.sample(prompt.token_ids, 1, Sampling()))[0].token_ids.tolist()


def test_ppo_plus_plus_with_beta_1_has_the_guides_prefix_and_learns_what_follows() -> None:
    group = collect(Guided(n=6, algorithm="ppo_plus_plus", beta=1.0))
    for i, t in enumerate(group):
        _, prefix, rest = t.segments
        whole = rolled_in("guide", i)
        assert (prefix.actor, prefix.trained, rest.actor, rest.trained) == ("guide", False, "policy", True)
        assert prefix.token_ids.tolist() == whole[: len(prefix)] and 1 <= len(prefix) <= len(whole) - 1
        assert info_of(t)["prefix_tokens"] == len(prefix)
        assert t.num_trained == len(rest) and t.learners == {"policy"} and np.isfinite(t.behavior_logp).all()
        assert t.completion == prefix.text + rest.text and t.sample == i


def test_aggrevated_learns_from_the_policys_prefix_and_has_the_guides_rest_on_the_time_axis() -> None:
    for t in collect(Guided(n=6, algorithm="aggrevated", beta=1.0)):
        _, prefix, rest = t.segments
        assert (prefix.actor, prefix.trained, rest.actor, rest.trained) == ("policy", True, "guide", True)
        assert len(prefix) and np.isfinite(t.behavior_logp).all()
        assert t.num_trained == len(prefix) + len(rest) and "policy" in t.learners


def test_without_a_prefix_aggrevated_is_the_guide_alone_for_its_critic() -> None:
    for t in collect(Guided(n=3, algorithm="aggrevated", beta=0.0)):
        _, prefix, rest = t.segments
        assert len(prefix) == 0 and prefix.actor == "policy" and rest.actor == "guide"
        assert "policy" in t.learners, "the policy's rollout, of which it learns nothing"


def test_beta_0_is_independent_sampling() -> None:
    ours = collect(Guided(n=4, algorithm="ppo_plus_plus", beta=0.0))
    theirs = collect(Independent(n=4))
    assert [t.token_ids.tolist() for t in ours] == [t.token_ids.tolist() for t in theirs]
    assert [len(t.segments) for t in ours] == [2] * 4


@pytest.mark.slow
def test_beta_is_the_share_with_a_prefix_and_lengths_are_uniform() -> None:
    """Roll-ins of three tokens have a prefix of one or two."""
    lengths: Counter[int] = Counter()
    for key in map(str, range(60)):
        group = collect(Guided(n=10, algorithm="ppo_plus_plus", beta=0.6, sampling=Sampling(max_tokens=3)), key)
        lengths.update(len(t.segments[1]) for i, t in enumerate(group) if len(rolled_in("guide", i, key)) >= 3)
    total = sum(lengths.values())
    assert lengths.keys() == {0, 1, 2} and total > 300
    assert lengths[0] / total == pytest.approx(0.4, abs=0.1)
    assert lengths[1] / total == pytest.approx(0.3, abs=0.1)


def test_a_roll_in_of_one_token_has_no_prefix() -> None:
    for t in collect(Guided(n=3, algorithm="ppo_plus_plus", beta=1.0, sampling=Sampling(max_tokens=1))):
        assert len(t.segments[1]) == 0 and len(t.segments[2]) == 1


def test_prefix_and_rest_share_the_limit_of_tokens() -> None:
    for t in collect(Guided(n=8, algorithm="ppo_plus_plus", beta=1.0, sampling=Sampling(max_tokens=5))):
        assert len(t.segments[1]) + len(t.segments[2]) <= 5


def test_the_guide_rolls_out_first_in_d2lols_and_by_a_coin_in_lols() -> None:
    late = Guided(algorithm="d2lols")
    assert [late.at(p).algorithm for p in (0.0, 0.39, 0.4, 1.0)] == ["aggrevated"] * 2 + ["ppo_plus_plus"] * 2
    coin = Guided(algorithm="lols")
    assert [coin.drawn(u).algorithm for u in (0.0, 0.79, 0.81)] == ["ppo_plus_plus"] * 2 + ["aggrevated"]
    assert coin.at(0.9) == coin and late.drawn(0.9) == late
    assert late.at(0.0).critic == "guide_critic" and late.at(1.0).critic is None and late.critics == {"guide_critic"}
    plain = Guided(algorithm="ppo_plus_plus")
    assert plain.critics == frozenset() and plain.roles == {"guide"}
    with pytest.raises(ValidationError, match="tau is for lols and d2lols"):
        Guided(algorithm="aggrevated", tau=0.5)
