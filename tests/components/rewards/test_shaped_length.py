"""Right answers by length, wrong ones by length, by hand."""

import pytest

from posttrain.components.rewards import Reward
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.shaped_length import ShapedLength
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all

REWARD = ShapedLength(correct=Match(), limit=40)


def padded(answer: str, length: int) -> str:
    text = f"\n#### {answer}"
    return "x" * (length - len(text)) + text


@pytest.mark.parametrize(
    ("length", "right", "wrong"), [(10, 0.868198, -0.868198), (20, 0.55, -0.55), (40, 0.1, -0.1), (80, 0.1, -0.1)]
)
def test_by_hand(length: int, right: float, wrong: float) -> None:
    """A quarter of the limit is .1 + .45 (1 + cos 45 degrees); beyond the limit it is held."""
    assert judge(REWARD, padded("42", length)).value == pytest.approx(right, abs=1e-6)
    assert judge(REWARD, padded("41", length)).value == pytest.approx(wrong, abs=1e-6)


def test_a_line_by_hand() -> None:
    line = ShapedLength(correct=Match(), limit=40, shape="linear")
    for length, right in ((10, 0.775), (20, 0.55), (40, 0.1), (80, 0.1)):
        assert judge(line, padded("42", length)).value == pytest.approx(right)
        assert judge(line, padded("41", length)).value == pytest.approx(-right)


def test_right_is_always_above_wrong_and_shorter_right_above_longer() -> None:
    rights = [judge(REWARD, padded("42", n)).value for n in range(8, 100)]
    wrongs = [judge(REWARD, padded("41", n)).value for n in range(8, 100)]
    assert rights == sorted(rights, reverse=True) and wrongs == sorted(wrongs)
    assert min(rights) > max(wrongs)


def test_nothing_written_is_a_short_wrong_answer() -> None:
    assert judge(REWARD, "").value == -1.0


def test_a_reference_that_cannot_be_read_rewards_no_rollout() -> None:
    """The release counts every rollout at such a task as right."""
    numeric = ShapedLength(correct=Match(numeric="always"))
    for gold in ("", "a sphere"):
        scores = score_all(numeric, *(attempt(text, Task(key="k", prompt="?", answer=gold)) for text in ("1", "2")))
        assert [score.status for score in scores] == ["error", "error"]


def test_tokens_as_the_unit() -> None:
    assert judge(ShapedLength(correct=Match(), limit=2, unit="tokens"), "#### 42").value == pytest.approx(0.1)


def test_the_old_name_of_the_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="the reward 'cosine' was renamed: write shaped_length"):
        Reward.find("cosine")
