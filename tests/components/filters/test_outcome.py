import pytest

from posttrain.components.filters.outcome import Outcome
from posttrain.types import Group, Score
from tests.builders import group

GROUPS = [group([1.0, -1.0, -1.0], key="mixed"), group([1.0, 1.0], key="easy"), group([-1.0], key="hard")]


def rewards(groups: list[Group]) -> dict[str, list[float]]:
    return {g.key: g.rewards.tolist() for g in groups}


def test_correct_rollouts_only() -> None:
    _, kept, dropped = Outcome()({}, GROUPS)
    assert rewards(kept) == {"mixed": [1.0], "easy": [1.0, 1.0]}
    assert [(item.group.key, item.group.rewards.tolist(), item.reason) for item in dropped] == [
        ("mixed", [-1.0, -1.0], "only correct rollouts are kept"),
        ("hard", [-1.0], "only correct rollouts are kept"),
    ]
    assert kept[0].pool == (1.0, -1.0, -1.0), "for advantages that compare with all of them"


def test_incorrect_rollouts_only() -> None:
    _, kept, dropped = Outcome(keep="wrong")({}, GROUPS)
    assert rewards(kept) == {"mixed": [-1.0, -1.0], "hard": [-1.0]}
    assert [t.sample for t in kept[0]] == [1, 2]
    assert rewards([item.group for item in dropped]) == {"mixed": [1.0], "easy": [1.0, 1.0]}


def test_it_is_the_score_that_counts_and_not_the_reward() -> None:
    """An incorrect rollout with a reward of 0.5, and a correct one with -2."""
    wrong, right = group([0.5, 0.0]).trajectories
    right = right.scored(Score(value=-2.0, status="ok"))
    _, kept, _ = Outcome()({}, [Group(trajectories=(wrong, right))])
    assert [g.rewards.tolist() for g in kept] == [[-2.0]]


@pytest.mark.parametrize("keep", ["right", "wrong"])
def test_a_pool_that_is_known_is_handed_on(keep: str) -> None:
    known = Group(key="k", trajectories=GROUPS[0].trajectories, pool=(1.0, 1.0, -1.0, -1.0))
    _, kept, _ = Outcome(keep=keep)({}, [known])  # type: ignore[arg-type]
    assert kept[0].pool == known.pool
