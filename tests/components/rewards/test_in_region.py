import pytest

from posttrain.components.rewards.in_region import InRegion
from tests.components.rewards.judging import judge


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 0", 1.0),
        ("3.5 0", 1.0),
        ("3.6 0", 0.0),
        ("2 -1.5", 1.0),
        ("2", 0.0),
        ("2 0 0", 0.0),
        ("two 0", 0.0),
        ("nan 0", 0.0),
    ],
)
def test_a_ball_of_radius_one_and_a_half(text: str, value: float) -> None:
    score = judge(InRegion(), text)
    assert score.value == value and score.status == ("ok" if value else "wrong")
