"""Laws of the filters, for every member on arrival."""

import json

import numpy as np
import pytest

from posttrain.components.filters import Filter
from posttrain.types import Group
from tests.builders import random_batch
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("member", members(Filter))


def some_groups(seed: int) -> list[Group]:
    """Mixed, constant and single groups."""
    mixed = random_batch(seed, sizes=(4, 3, 1, 6), rewards=lambda rng: float(rng.normal())).groups
    constant = random_batch(seed, sizes=(4, 2), rewards=lambda rng: 1.0).groups
    everything = [*mixed, *constant]
    return [everything[i] for i in np.random.default_rng(seed).permutation(len(everything))]


@every_member
@each(seed=range(3))
def test_every_trajectory_is_kept_or_dropped_with_a_reason(member: Filter, seed: int) -> None:
    groups = some_groups(seed)
    _, kept, dropped = member(member.start(), groups)
    places = {id(t): (g, i) for g, group in enumerate(groups) for i, t in enumerate(group)}
    kept_at = [places[id(t)] for group in kept for t in group]
    dropped_at = [places[id(t)] for item in dropped for t in item.group]
    assert sorted(kept_at + dropped_at) == sorted(places.values())
    assert kept_at == sorted(kept_at), "what is kept stays in order"
    assert all(item.reason.strip() for item in dropped)
    assert all(len(group) for group in kept)


@every_member
def test_nothing_in_nothing_out(member: Filter) -> None:
    _, kept, dropped = member(member.start(), [])
    assert kept == [] and dropped == []


@every_member
def test_state_is_json_and_resumes_exactly(member: Filter) -> None:
    state = saved = member.start()
    for step in range(4):
        groups = some_groups(step)
        saved = json.loads(json.dumps(saved, allow_nan=False))
        before = json.dumps(state)
        following, kept, _ = member(state, groups)
        assert json.dumps(state) == before, "the state is changed by returning a new one"
        saved, kept_resumed, _ = member(saved, groups)
        state = following
        assert [list(map(id, g)) for g in kept] == [list(map(id, g)) for g in kept_resumed]
        assert json.dumps(state) == json.dumps(saved)


@every_member
def test_one_that_needs_several_drops_groups_of_one(member: Filter) -> None:
    single = random_batch(0, sizes=(1, 1, 1), rewards=lambda rng: float(rng.normal())).groups
    assert not member.needs_several or member(member.start(), list(single))[1] == []
