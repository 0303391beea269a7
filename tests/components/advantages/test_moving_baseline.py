from posttrain.components.advantages.moving_baseline import MovingBaseline
from tests.builders import batch


def test_the_baseline_has_earlier_rewards_only() -> None:
    """Means 1 and 3: the first step has its own mean as its baseline, the second one the same, then .5 + 1.5 = 2."""
    member = MovingBaseline(decay=0.5)
    state = member.start()
    found = []
    for rewards in ([0.0, 2.0], [3.0, 3.0], [2.0, 2.0]):
        state, credit = member(state, batch([rewards]))
        found.append([float(a_T[0]) for a_T in credit.advantages])
    assert found == [[-1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]
