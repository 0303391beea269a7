"""A search as a rollout: all that was found is one group, scored once."""

import asyncio

from posttrain.components.rollouts.searched import Searched
from posttrain.components.search.tree import Tree
from posttrain.engines import Sampling
from posttrain.types import Group
from tests.components.search.lines import TASK, Lines, Scorer

SCRIPT = {"P:": ["a\nx", "b\ny"], "P:a\n": ["x", "z"]}
REWARDS = {"a\nx": 1.0, "a\nz": 0.0, "b\ny": 0.0}
VALUES = {"a\n": 0.9, "b\n": 0.1, "a\nx": 0.2, "a\nz": 0.3, "b\ny": 0.4}


def collect(tree: Tree, scorer: Scorer) -> Group:
    lines = Lines(SCRIPT, VALUES)
    [group] = asyncio.run(Searched(search=tree).collect_scored(TASK, {"policy": lines, "value": lines}, scorer))
    return group


def test_every_rollout_is_scored_once_for_any_caller() -> None:
    for role in ("value", None):
        scorer = Scorer(REWARDS)
        group = collect(Tree(iterations=2, samples=2, value_role=role), scorer)
        assert group.rewards.tolist() == [1.0, 0.0, 1.0, 0.0]
        assert scorer.graded == ["a\nx", "b\ny", "a\nx", "a\nz"]
        assert [t.sample for t in group] == [0, 1, 2, 3]


def test_common_prefixes_are_shared_segments() -> None:
    group = collect(Tree(iterations=2, samples=2), Scorer(REWARDS))
    first, _, third, fourth = group.trajectories
    assert first.segments[1] is third.segments[1] is fourth.segments[1]
    # by the script, a token's log-probability is -(its place) - (length of the text before the request)
    assert third.behavior_logp.tolist() == [-3.0, -4.0, -5.0, -6.0]
    assert third.trained_positions.tolist() == [2, 3, 4, 5]


def test_temperature_and_limits_are_the_search_s() -> None:
    rollout = Searched(search=Tree(sampling=Sampling(temperature=0.7, max_tokens=9)))
    assert rollout.temperature == 0.7 and rollout.sampling.max_tokens == 9
