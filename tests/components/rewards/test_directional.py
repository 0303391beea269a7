"""The score along a direction: by hand, standardized, and texts without a rating."""

import math

import pytest

from posttrain.components.rewards.directional import Directional
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.sum import Sum
from posttrain.components.rewards.wanted_words import WantedWords
from posttrain.errors import UserError
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, score_all


def task(degrees: float) -> Task:
    v = [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]
    return Task(key="t", prompt="P", fields={"direction": v, "wanted": ["fox", "bee"]})


def values(degrees: float, *texts: str, reward: Directional | None = None) -> list[Score]:
    reward = reward or Directional(of=WantedWords())
    return score_all(reward, *(attempt(text, task(degrees)) for text in texts))


def test_by_hand() -> None:
    """Half of six words are wanted: helpfulness 2, verbosity 4 * 6 / 12 = 2."""
    text = " fox owl bee owl fox owl."
    for degrees, expected in ((0.0, 2.0), (45.0, 2.0 * math.sqrt(2.0)), (-45.0, 0.0), (90.0, 2.0)):
        [score] = values(degrees, text)
        assert score.value == pytest.approx(expected, abs=1e-12)
    assert score.parts["helpfulness"].value == score.parts["verbosity"].value == 2.0


def test_the_direction_decides_which_text_is_best() -> None:
    """Helpfulness and verbosity: 4 and 1/3, 3 and 4/3, 0 and 4."""
    texts = (" fox.", " fox bee fox owl.", " owl" * 12 + ".")
    best = {d: max(range(3), key=lambda i: values(d, *texts)[i].value) for d in (-45.0, 0.0, 40.0, 80.0)}
    assert best == {-45.0: 0, 0.0: 0, 40.0: 0, 80.0: 2}
    scores = [score.value for score in values(45.0, *texts)]
    assert scores == pytest.approx([x / math.sqrt(2.0) for x in (4 + 1 / 3, 3 + 4 / 3, 4.0)])


def test_standardized_ratings_have_the_same_weight() -> None:
    """Helpfulness 4 and 0, verbosity 1/3 and 2/3: both are 1 and -1 from their mean."""
    reward = Directional(of=WantedWords(), standardized=True)
    first, second = values(45.0, " fox.", " owl owl.", reward=reward)
    assert first.value == pytest.approx(0.0, abs=1e-4) and second.value == pytest.approx(0.0, abs=1e-4)
    assert [s.value for s in values(0.0, " fox.", " owl owl.", reward=reward)] == pytest.approx([1.0, -1.0], abs=1e-4)
    assert values(0.0, " fox.", " fox.", reward=reward)[0].value == 0.0, "all the same"


def test_an_empty_text_does_not_win_where_short_ones_are_wanted() -> None:
    empty, short, worst = values(-45.0, "", " fox.", " owl owl.")
    assert short.value > 0.0 > worst.value == pytest.approx(-2 / 3 / math.sqrt(2.0))
    assert empty.status == "wrong" and empty.value == worst.value - 1.0
    assert values(-45.0, "", " ")[0].value == -1.0


def test_a_reward_that_does_not_rate_an_axis_is_an_error() -> None:
    [score] = values(0.0, "x", reward=Directional(of=Sum(parts={"helpful": Match()})))
    assert score.status == "error"
    named = Directional(of=WantedWords(), axes=("helpfulness", "brevity"))
    [score] = values(0.0, " fox.", reward=named)
    assert score.status == "error" and "does not rate 'brevity'" in score.explanation


def test_a_task_without_a_direction_is_refused() -> None:
    reward = Directional(of=WantedWords())
    for own in (None, [1.0], ["a", "b"], [math.nan, 1.0]):
        with pytest.raises(UserError, match="two finite numbers"):
            reward.check([Task(key="t", prompt="P", fields={"direction": own, "wanted": ["fox"]})])
    with pytest.raises(UserError, match="no wanted words"):
        reward.check([Task(key="t", prompt="P", fields={"direction": [1.0, 0.0]})])
