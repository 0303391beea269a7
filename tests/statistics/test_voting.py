import pytest

from posttrain.statistics.voting import vote


def test_the_majority_wins_and_the_first_wins_a_tie() -> None:
    assert vote(["4", "5", "5"]) == 1
    assert vote(["4", "5"]) == 0
    assert vote(["4", None, "5", None, None, "5"]) == 2
    assert vote([None, None]) is None
    assert vote([]) is None


def test_two_sure_answers_outvote_three_unsure_ones() -> None:
    answers = ["7", "7", "8", "7", "8"]
    assert answers[vote(answers) or 0] == "7"
    assert answers[vote(answers, [0.2, 0.2, 0.9, 0.2, 0.9]) or 0] == "8"


def test_one_weight_each() -> None:
    with pytest.raises(ValueError):
        vote(["4", "5"], [1.0])
