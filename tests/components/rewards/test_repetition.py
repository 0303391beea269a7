import pytest

from posttrain.components.rewards.repetition import Repetition
from tests.components.rewards.judging import judge

RUN = "one two three four five six seven eight nine ten "


@pytest.mark.parametrize(("times", "value"), [(1, 0.0), (9, 0.0), (10, -1.0), (50, -1.0)])
def test_ten_words_ten_times(times: int, value: float) -> None:
    between = " ".join(f"{RUN}{n}" for n in range(times))
    score = judge(Repetition(), between)
    assert (score.value, score.status) == (value, "ok" if value == 0 else "wrong")


def test_runs_may_overlap_and_underscores_are_spaces() -> None:
    assert judge(Repetition(), "a " * 18).value == 0.0, "nine runs of ten"
    assert judge(Repetition(), "a " * 19).value == -1.0
    assert judge(Repetition(), "a_" * 19).value == -1.0
    assert judge(Repetition(), "a" * 500).value == 0.0


def test_settings() -> None:
    score = judge(Repetition(words=2, times=3, penalty=0.5), "a b a b a b")
    assert score.value == -0.5
    assert score.explanation == "repeats 3 times 'a b'"
    assert judge(Repetition(), "").value == 0.0
