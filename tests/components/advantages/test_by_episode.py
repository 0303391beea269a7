"""Each episode counts once, however many rollouts it has."""

from dataclasses import replace

import pytest

from posttrain.components.advantages.by_episode import ByEpisode
from posttrain.components.rollouts import Row
from posttrain.types import Batch
from tests.builders import batch


def with_rows(given: Batch, episodes: list[int]) -> Batch:
    [group] = given.groups
    rows = tuple(
        replace(t, facts=(Row(episode=episode, row=i),))
        for i, (t, episode) in enumerate(zip(group, episodes, strict=True))
    )
    return replace(given, groups=(replace(group, trajectories=rows),))


def test_three_rows_of_one_episode_and_one_of_another() -> None:
    """Episodes 1 and 0: mean 1/2, std sqrt(1/2). Over rows the mean would be 3/4."""
    credit = ByEpisode()({}, with_rows(batch([[1, 1, 1, 0]]), [0, 0, 0, 1]))[1]
    half = 0.5 / (0.5**0.5 + 1e-6)
    assert [a[0] for a in credit.advantages] == pytest.approx([half, half, half, -half])
    plain = ByEpisode(standardize=False)({}, with_rows(batch([[1, 1, 1, 0]]), [0, 0, 0, 1]))[1]
    assert [a[0] for a in plain.advantages] == pytest.approx([0.5, 0.5, 0.5, -0.5])


def test_rollouts_without_the_fact_are_episodes_of_their_own() -> None:
    credit = ByEpisode(standardize=False)({}, batch([[1, 1, 1, 0]]))[1]
    assert [a[0] for a in credit.advantages] == pytest.approx([0.25, 0.25, 0.25, -0.75])


def test_a_single_episode_keeps_its_reward_and_equal_ones_have_none() -> None:
    assert ByEpisode()({}, batch([[1]]))[1].advantages[0][0] == pytest.approx(1.0, abs=1e-5)
    assert all(not a.any() for a in ByEpisode()({}, batch([[1, 1]]))[1].advantages)
