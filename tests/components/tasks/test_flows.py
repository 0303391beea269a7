"""Tasks for flows: points, states and episodes."""

import numpy as np

from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.reaching import Reaching
from posttrain.components.tasks.two_modes import TwoModes


def test_points_lie_around_both_modes() -> None:
    tasks = TwoModes(size=400).load()
    points = np.array([[float(x) for x in t.demonstrations[0].split()] for t in tasks])
    right = points[:, 0] > 0
    assert 0.4 < right.mean() < 0.6
    np.testing.assert_allclose(points[right].mean(0), [2.0, 0.0], atol=0.1)
    np.testing.assert_allclose(points[right].std(0), 0.5, atol=0.08)


def test_a_larger_set_begins_with_the_same_tasks() -> None:
    for kind in (TwoModes, Reaching, Episodes):
        small, large = kind(size=5).load(), kind(size=9).load()
        assert tuple(large[:5]) == tuple(small) and len({t.key for t in large}) == 9
        assert kind(size=5, seed=1).load()[0] != small[0] or kind is TwoModes


def test_another_seed_draws_other_points() -> None:
    assert TwoModes(seed=1).load()[0].demonstrations != TwoModes().load()[0].demonstrations


def test_states_are_prompts_and_actions_demonstrations() -> None:
    for task in Reaching(size=20).load():
        assert len(str(task.prompt).split()) == 3 and len(task.demonstrations[0].split()) == 2
