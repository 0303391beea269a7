import math

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rewards.calibrated import Calibrated
from posttrain.components.rewards.function import Function
from posttrain.components.rewards.match import Match
from tests.components.rewards.judging import SUM, judge

REWARD = Calibrated(correct=Match())


def said(answer: str, confidence: str) -> str:
    return f"6*7={answer}\n#### {answer}\n<confidence>{confidence}</confidence>"


@pytest.mark.parametrize(
    ("answer", "confidence", "value"),
    [("42", "1", 1.0), ("41", "1", -1.0), ("41", "0", 0.0), ("42", "0", 0.0), ("42", "0.7", 0.91), ("41", ".7", -0.49),
     ("42", " 0.50 ", 0.75), ("42", "1.", 1.0)],
)  # fmt: skip
def test_right_minus_squared_distance(answer: str, confidence: str, value: float) -> None:
    score = judge(REWARD, said(answer, confidence))
    assert score.value == pytest.approx(value)
    assert score.status == ("ok" if answer == "42" else "wrong")
    assert score.answer == answer
    assert score.confidence == pytest.approx(float(confidence))
    assert score.parts["brier"].value == pytest.approx(-((float(confidence) - (answer == "42")) ** 2))
    assert score.parts["correct"].value == float(answer == "42")


@pytest.mark.parametrize(
    "text",
    ["#### 42", said("42", "1.2"), said("42", "90%"), said("42", "-0.1"), said("42", "nan"), said("42", "1e-1"),
     said("42", "high"), said("42", ""), said("42", "0.5") + " I think", "<confidence>0.5", "", said("42", "٠")],
)  # fmt: skip
def test_another_form_is_worse_than_any_over_confident_error(text: str) -> None:
    score = judge(REWARD, text)
    assert score.value == -2.0 < judge(REWARD, said("41", "1")).value
    assert score.confidence is None
    assert "does not end with a number" in score.explanation


def test_the_last_confidence_counts_and_the_answer_stands_before_it() -> None:
    assert judge(REWARD, f"{said('41', '0.1')} no:\n{said('42', '0.9')}").confidence == 0.9
    last_number = Calibrated(correct=Match(extract=("last_number",)))
    assert judge(last_number, said("42", "0.9")).answer == "42", "not the confidence itself"


def test_the_released_sum_of_parts_is_the_same_but_for_scale() -> None:
    """Format, accuracy and 1 - (c - q)^2, each weighed 1/2, all of them 0 for a bad form: 1 + R / 2, and 0."""
    for answer in ("42", "41"):
        for confidence in ("0", "0.3", "1"):
            right, q = float(answer == "42"), float(confidence)
            released = 0.5 + 0.5 * right + 0.5 * (1 - (right - q) ** 2)
            assert 1 + judge(REWARD, said(answer, confidence)).value / 2 == pytest.approx(released)
    assert 1 + judge(REWARD, "#### 42").value / 2 == 0.0


def expected(reward: Calibrated, chance: float, confidence: float) -> float:
    """Mean reward of stating a confidence where the answer is right so often."""
    right = judge(reward, said("42", f"{confidence:.2f}")).value
    wrong = judge(reward, said("41", f"{confidence:.2f}")).value
    return chance * right + (1 - chance) * wrong


@pytest.mark.parametrize("rule", ["brier", "log"])
@pytest.mark.parametrize("chance", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_the_truth_is_rewarded_most(rule: str, chance: float) -> None:
    reward = Calibrated(correct=Match(), rule=rule)  # type: ignore[arg-type]
    means = [expected(reward, chance, q / 20) for q in range(21)]
    assert int(np.argmax(means)) / 20 == pytest.approx(chance)


def test_better_answers_get_more_by_the_square_and_not_by_the_logarithm() -> None:
    log = Calibrated(correct=Match(), rule="log")
    for chance in (0.0, 0.1, 0.3, 0.5, 0.9, 1.0):
        assert expected(REWARD, chance, chance) == pytest.approx(chance**2)
    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert expected(log, 0.3, 0.3) == pytest.approx(0.3 - entropy)
    assert expected(log, 0.3, 0.3) < expected(log, 0.0, 0.0) == 0.0


def test_the_logarithm_is_finite() -> None:
    log = Calibrated(correct=Match(), rule="log")
    assert judge(log, said("41", "1")).value == pytest.approx(math.log(1e-3))


def test_weight_and_form_can_be_left_out() -> None:
    plain = Calibrated(correct=Match(), weight=0.0, malformed=None)
    assert judge(plain, said("42", "0.2")).value == 1.0
    assert judge(plain, said("42", "0.2")).confidence == 0.2
    assert judge(plain, said("41", "0.2")).value == 0.0
    assert judge(plain, "#### 42").value == 1.0
    assert judge(plain, "#### 41").value == 0.0
    assert judge(Calibrated(correct=Match(), weight=0.5), said("41", "1")).value == -0.5


def test_another_tag() -> None:
    assert judge(Calibrated(correct=Match(), tag="p"), "42\n<p>1</p>").value == 1.0
    with pytest.raises(ValidationError):
        Calibrated(correct=Match(), tag="<p>")


def test_files_of_the_judge_are_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.py"
    file.write_text("def score(completion):\n    return float(completion.strip() == 'yes')\n")
    reward = Calibrated(correct=Function(path=f"{file}:score"))
    reward.prepare()
    assert list(reward.fingerprint) == [str(file)]
    assert judge(reward, "yes\n<confidence>0.5</confidence>", SUM).value == 0.75
