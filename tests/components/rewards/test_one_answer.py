import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.one_answer import OneAnswer
from posttrain.types import Task
from tests.components.rewards.judging import judge


def gold(answer):
    return Task(key="row-7", prompt="How many apples does Ada have now?", answer=answer)


@pytest.mark.parametrize(
    ("answer", "completion"),
    [
        ("28", "8 * 5 = 40\n40 - 12 = 28\n#### 28"),
        ("28", "Ada has 40 - 12 = 28 apples."),
        ("28", "The answer is **28**."),
        ("28", "The answer is: 28\n#### 28.0"),
        ("1234", r"\boxed{1,234}"),
        ("-3", "#### -3"),
        ("5", "Answer: $5"),
    ],
)
def test_correct(answer, completion):
    score = judge(OneAnswer(), completion, gold(answer))
    assert (score.value, score.status) == (1.0, "ok"), score.explanation


@pytest.mark.parametrize(
    ("completion", "explanation"),
    [
        ("#### 27", "'27' is not 28"),
        ("#### 28\n#### 27", "has several answers: '28, 27'"),
        ("The answer is 27.\n#### 28", "has several answers: '27, 28'"),
        ("#### 28.5", "'28.5' is not 28"),
        ("#### 280", "'280' is not 28"),
        ("28\nI do not know.", "no marked number, and none in the last line"),
        ("", "no marked number"),
        ("It is 28x", "no marked number"),
        ("28 apples, or 27", "'27' is not 28"),
    ],
)
def test_wrong(completion, explanation):
    score = judge(OneAnswer(), completion, gold("28"))
    assert (score.value, score.status) == (0.0, "wrong")
    assert explanation in score.explanation


def test_it_is_stricter_than_the_reward_that_is_trained():
    hedged = "#### 27\n#### 28"
    assert judge(Match(), hedged, gold("28")).value == 1.0
    assert judge(OneAnswer(), hedged, gold("28")).value == 0.0
    assert judge(OneAnswer(), "#### 28\n", gold("28"), stop_reason="length").status == "wrong"


def test_a_task_without_a_whole_answer_is_an_error():
    for answer in (None, "", "Paris", "1/2", "2.5"):
        assert judge(OneAnswer(), "#### 1", gold(answer)).status == "error"
