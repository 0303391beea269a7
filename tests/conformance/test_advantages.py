"""Laws of the advantage estimators, for every member on arrival."""

import json
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages import Advantage
from posttrain.types import Batch, Credit, Group
from tests.builders import batch, random_batch
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("advantage", members(Advantage))


def credit_of(advantage: Advantage, given: Batch) -> Credit:
    return advantage(advantage.start(), given)[1]


def with_signals(advantage: Advantage, given: Batch) -> Batch:
    """The batch with the signals that the estimator needs, all zero."""
    zeros = tuple(np.zeros_like(r) for r in given.token_rewards)
    return replace(given, signals=dict.fromkeys(advantage.needs, zeros))


@every_member
def test_one_finite_number_a_token(advantage: Advantage) -> None:
    given = random_batch(needs=advantage.needs)
    credit = credit_of(advantage, given)
    for parts in (credit.advantages, credit.value_targets) if credit.value_targets else (credit.advantages,):
        assert [len(part) for part in parts] == [t.num_trained for t in given.trajectories]
        assert all(part.dtype == np.float32 and np.isfinite(part).all() for part in parts)
    assert all(np.isfinite(value) for value in credit.metrics.values())


@every_member
@each(reward=[0.0, 0.1, 1.0, -7.3, 1e6], sizes=[(1,), (1, 1), (3,), (5, 1, 2)])
def test_finite_on_constant_rewards(advantage: Advantage, sizes: tuple[int, ...], reward: float) -> None:
    given = with_signals(advantage, batch([[reward] * size for size in sizes]))
    assert np.isfinite(np.concatenate(credit_of(advantage, given).advantages)).all()


@every_member
def test_trajectories_without_tokens(advantage: Advantage) -> None:
    given = with_signals(advantage, batch([[1, 0, 0]], token_rewards=[[0, 1.0], [], [0.0]]))
    credit = credit_of(advantage, given)
    assert [len(a) for a in credit.advantages] == [2, 0, 1]
    assert np.isfinite(np.concatenate(credit.advantages)).all()


@every_member
def test_better_rollouts_get_more_credit(advantage: Advantage) -> None:
    given = with_signals(advantage, batch([[1, 1, 0, 0], [1, 0, 0, 0]]))
    means = np.array([a.mean() for a in credit_of(advantage, given).advantages])
    right = given.return_N == 1
    if advantage.chooses:
        assert means[right].max() > means[~right].max() and means[right].min() >= 0.0
        return
    assert means[right].min() > means[~right].max()


@every_member
@each(seed=range(3))
def test_permutation_equivariant(advantage: Advantage, seed: int) -> None:
    """Rollouts within a group, and groups within the batch, may come in any order."""
    given, rng = random_batch(seed, needs=advantage.needs), np.random.default_rng(seed)
    starts = np.cumsum([0, *(len(g) for g in given.groups)])
    order, groups = [], []
    for g in rng.permutation(len(given.groups)):
        within = rng.permutation(len(given.groups[g]))
        groups.append(
            Group(key=given.groups[g].key, trajectories=tuple(given.groups[g].trajectories[i] for i in within))
        )
        order += [starts[g] + i for i in within]
    shuffled = replace(
        given,
        groups=tuple(groups),
        token_rewards=tuple(given.token_rewards[i] for i in order),
        signals={name: tuple(parts[i] for i in order) for name, parts in given.signals.items()},
    )
    before, after = credit_of(advantage, given), credit_of(advantage, shuffled)
    for parts, moved in ((before.advantages, after.advantages), (before.value_targets, after.value_targets)):
        for i, part in zip(order, moved, strict=True) if parts else ():
            np.testing.assert_allclose(part, parts[i], rtol=1e-5, atol=1e-6)


@every_member
def test_state_is_json_and_resumes_exactly(advantage: Advantage) -> None:
    kept = saved = advantage.start()
    for step in range(4):
        given = random_batch(step, needs=advantage.needs)
        saved = json.loads(json.dumps(saved, allow_nan=False))
        kept, credit = advantage(kept, given)
        saved, resumed = advantage(saved, given)
        for left, right in zip(credit.advantages, resumed.advantages, strict=True):
            np.testing.assert_array_equal(left, right)
        assert json.dumps(saved) == json.dumps(kept)


@every_member
def test_nothing_is_written(advantage: Advantage) -> None:
    given, untouched = random_batch(needs=advantage.needs), random_batch(needs=advantage.needs)
    state = advantage.start()
    before = json.dumps(state)
    advantage(state, given)
    assert json.dumps(state) == before, "the state is changed by returning a new one"
    for left, right in zip(given.token_rewards, untouched.token_rewards, strict=True):
        np.testing.assert_array_equal(left, right)
    for name, parts in given.signals.items():
        for left, right in zip(parts, untouched.signals[name], strict=True):
            np.testing.assert_array_equal(left, right)


@every_member
def test_needs_are_exact(advantage: Advantage) -> None:
    """Nothing undeclared is read: every other test gives declared signals only. What is declared is read."""
    for need in advantage.needs:
        with pytest.raises(KeyError):
            credit_of(advantage, random_batch(needs=advantage.needs - {need}))


@every_member
def test_a_relative_advantage_is_zero_in_groups_of_one(advantage: Advantage) -> None:
    credit = credit_of(advantage, with_signals(advantage, batch([[1.0], [0.0], [0.25]])))
    assert not advantage.is_relative or not np.concatenate(credit.advantages).any()


@every_member
def test_what_it_reads_of_token_rewards_is_as_declared(advantage: Advantage) -> None:
    """One that reads the sum gives the same credit wherever in a rollout its rewards are."""
    given = random_batch(1, needs=advantage.needs, rewards=lambda rng: float(rng.integers(4)) / 4)
    even = replace(given, token_rewards=tuple(np.round(r * 64) / 64 for r in given.token_rewards))
    moved = replace(even, token_rewards=tuple(r[::-1].copy() for r in even.token_rewards))
    pairs = zip(credit_of(advantage, even).advantages, credit_of(advantage, moved).advantages, strict=True)
    same = all(np.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in pairs)
    assert same == (advantage.reads == "sum")
