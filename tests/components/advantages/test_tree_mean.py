from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages._arithmetic import whitened
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.tree_mean import TreeMean
from posttrain.types import Batch, Group, Segment, Trajectory
from tests.builders import batch, random_batch


def in_tree(attempt: Trajectory, states: Sequence[str]) -> Trajectory:
    """The rollout with one trained token in each of the states; the last one has the rest."""
    [prompt, written] = attempt.segments
    ids = np.split(written.token_ids, range(1, len(states)))
    segments = [
        Segment(actor="policy", token_ids=i, trained=True, logp=np.full(len(i), -1.0, np.float32), state_key=s)
        for i, s in zip(ids, states, strict=True)
    ]
    return replace(attempt, segments=(prompt, *segments))


def tree_of(rewards: Sequence[float], ways: Sequence[Sequence[str]], lengths: Sequence[int]) -> Batch:
    flat = batch([rewards], token_rewards=[[0.0] * (n - 1) + [r] for r, n in zip(rewards, lengths, strict=True)])
    attempts = tuple(in_tree(t, way) for t, way in zip(flat.trajectories, ways, strict=True))
    return replace(flat, groups=(Group(trajectories=attempts),))


def first_tokens(advantage: TreeMean, given: Batch) -> list[float]:
    _, credit = advantage({}, given)
    return [float(a[0]) for a in credit.advantages]


def by_hand(raw: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """Whitened with mean and unbiased variance over all tokens."""
    tokens = np.repeat(raw, lengths)
    return list((np.array(raw) - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8))


# Two nodes with two leaves each; returns 1, 0 | 1, 1. Root mean 3/4, node means 1/2 and 1.
REWARDS = [1.0, 0.0, 1.0, 1.0]
WAYS = [("/", "/0"), ("/", "/0"), ("/", "/1"), ("/", "/1")]


@pytest.mark.parametrize("lengths", [(2, 2, 2, 2), (2, 9, 3, 5)])
def test_a_tree_of_two_by_two(lengths: tuple[int, ...]) -> None:
    given = tree_of(REWARDS, WAYS, lengths)
    raw = [(0.25 + 0.5) / 2, (-0.75 - 0.5) / 2, (0.25 + 0) / 2, (0.25 + 0) / 2]
    assert first_tokens(TreeMean(), given) == pytest.approx(by_hand(raw, lengths), abs=1e-5)
    sized = [(4 * 0.25 + 2 * 0.5) / 6, (4 * -0.75 + 2 * -0.5) / 6, 4 * 0.25 / 6, 4 * 0.25 / 6]
    assert first_tokens(TreeMean(weights="size"), given) == pytest.approx(by_hand(sized, lengths), abs=1e-5)


def test_nodes_that_one_rollout_passed_are_left_out() -> None:
    """The third rollout goes on alone: its only comparison is at the prompt. The first two part one level deeper."""
    ways = [("/", "/0", "/0/0"), ("/", "/0", "/0/0"), ("/", "/1", "/1/0")]
    given = tree_of([1.0, 0.0, 1.0], ways, (3, 3, 3))
    raw = [(1 / 3 + 0.5 + 0.5) / 3, (-2 / 3 - 0.5 - 0.5) / 3, 1 / 3]
    assert first_tokens(TreeMean(), given) == pytest.approx(by_hand(raw, (3, 3, 3)), abs=1e-5)


def test_every_token_of_a_rollout_gets_the_same_and_long_rollouts_weigh_more() -> None:
    given = tree_of(REWARDS, WAYS, (2, 9, 3, 5))
    _, credit = TreeMean()({}, given)
    assert [len(set(a.tolist())) for a in credit.advantages] == [1] * 4
    flat = np.concatenate(credit.advantages)
    assert flat.mean() == pytest.approx(0, abs=1e-6)
    assert flat.std(ddof=1) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("weights", ["equal", "size"])
def test_a_flat_group_is_the_group_mean_whitened(weights: str) -> None:
    given = batch([[1, 0, 0, 1, 0], [1, 1, 0]])
    _, flat = GroupMean(scale="none")({}, given)
    expected = [float(a[0]) for a in whitened([a.astype(np.float64) for a in flat.advantages])]
    assert first_tokens(TreeMean(weights=weights), given) == pytest.approx(expected, abs=1e-6)


def test_keys_of_different_groups_are_different_nodes() -> None:
    one = tree_of(REWARDS, WAYS, (2, 2, 2, 2))
    two = replace(one, groups=one.groups * 2, token_rewards=one.token_rewards * 2)
    raw = [0.375, -0.625, 0.125, 0.125] * 2
    assert first_tokens(TreeMean(), two) == pytest.approx(by_hand(raw, [2] * 8), abs=1e-5)


def test_no_division_by_a_groups_std() -> None:
    """A group whose rewards differ ten times as much gets ten times the credit."""
    small, large = (np.ptp(first_tokens(TreeMean(), batch([[1, 0], [10, 0]]))[i : i + 2]) for i in (0, 2))
    assert large == pytest.approx(10 * small, rel=1e-5)


def test_untrained_segments_are_no_states() -> None:
    given = random_batch(3, sizes=(6,))
    moved = [
        replace(t, segments=tuple(s if s.trained else replace(s, state_key=f"x{i}") for s in t.segments))
        for i, t in enumerate(given.trajectories)
    ]
    changed = replace(given, groups=(Group(trajectories=tuple(moved)),))
    assert first_tokens(TreeMean(), changed) == first_tokens(TreeMean(), given)
