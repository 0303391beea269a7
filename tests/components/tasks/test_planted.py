import numpy as np
import pytest

from posttrain.components.tasks.planted import Planted
from posttrain.datasets.planted import completed_at, reward_of
from posttrain.errors import UserError
from posttrain.statistics.planted import Planted as Exact


@pytest.mark.parametrize(
    ("text", "at", "left"),
    [("cab", 3, 7), (" xcxaxb", 6, 4), ("bac", None, 0), ("", None, 0), ("x" * 20 + "cab", 23, 0), ("c a\nb", 3, 7)],
)
def test_rewards_by_hand(text: str, at: int | None, left: int) -> None:
    assert (completed_at("cab", text), reward_of("cab", 10, text)) == (at, left)


def test_traces_are_those_of_the_mixture() -> None:
    tasks = Planted(size=2000, horizon=12).load()
    pays = [reward_of(str(t.fields["planted"]), 12, t.demonstrations[0]) for t in tasks]
    exact = Exact((0.1, 0.3, 0.9), [1 / 3] * 3, 3, 12)
    assert np.mean(pays) == pytest.approx(exact.mean, abs=0.3)
    assert np.var(pays) == pytest.approx(exact.variance, rel=0.1)
    assert all(len(t.demonstrations[0]) == 13 for t in tasks)


def test_successful_traces() -> None:
    tasks = Planted(size=100, traces="successful").load()
    assert all(reward_of(str(t.fields["planted"]), 20, t.demonstrations[0]) for t in tasks)
    with pytest.raises(UserError, match="no trace of 1000 with gammas"):
        Planted(size=1, horizon=2, traces="successful").load()
