from dataclasses import replace
from math import isnan

import pytest

from posttrain.components.rewards.match import Match
from posttrain.types import Task
from tests.components.rewards.judging import SUM, judge


def gold(answer: str | None) -> Task:
    return Task(key="row-7", prompt="What is it, in your opinion?", answer=answer)


@pytest.mark.parametrize(
    ("answer", "completion"),
    [
        ("42", "42"),
        ("42", "6 * 7 = 42, so the answer is $42.00."),
        ("6*7 is it\n#### 42", "#### 42"),
        (r"Thus \boxed{\frac{1}{2}}", r"\boxed{0.5}"),
        ("1,000", "<answer>1000</answer>"),
        ("0.5", "The answer is 1/2"),
        ("Paris", "The answer is **paris**."),
        ("New York", "answer: new   york"),
        ("B", "The answer is (B)."),
        ("1 2\n3 4", "Here it is:\n1 2\n3 4"),
        ("5 cm", r"\boxed{5\text{ cm}}"),
    ],
)
def test_right(answer: str, completion: str) -> None:
    score = judge(Match(), completion, gold(answer))
    assert (score.value, score.status) == (1.0, "ok"), score.explanation


@pytest.mark.parametrize(
    ("answer", "completion"),
    [
        ("42", "41"),
        ("42", "40 41 42 43"),
        ("42", "The answer is 41 or 42."),
        ("42", r"\boxed{41, 42}"),
        ("42", r"\boxed{42} is wrong, it is \boxed{41}"),
        ("42", "４２"),
        ("50%", "0.5"),
        ("1/3", "0.333333333"),
        ("5 cm", "5"),
        ("5 cm", "5 km"),
        ("5 or 6", "5"),
        ("Paris", "London or Paris"),
        ("a b", "ab"),
    ],
)
def test_wrong(answer: str, completion: str) -> None:
    score = judge(Match(), completion, gold(answer))
    assert (score.value, score.status) == (0.0, "wrong"), score.explanation
    assert score.answer is not None


def test_explains_what_was_compared() -> None:
    right = judge(Match(), "so the answer is 42.0.")
    assert right.answer == "42.0"
    assert right.explanation == "'42.0' (by phrase) is '42', compared as numbers"
    wrong = judge(Match(), "Lyon", gold("Paris"))
    assert wrong.explanation == "'Lyon' (by last_line) is not 'Paris', compared as text"


def test_nothing_found_is_wrong_and_reported() -> None:
    score = judge(Match(extract=("boxed", "hashes"), missing=-1.0), "42")
    assert (score.value, score.status, score.answer) == (-1.0, "wrong", None)
    assert score.explanation == "no answer found by boxed, hashes"
    cut = judge(Match(), "the answer is 4", stop_reason="length")
    assert "cut at the token limit" in cut.explanation


@pytest.mark.parametrize("answer", [None, "", "  "])
def test_a_task_without_an_answer_is_an_error(answer: str | None) -> None:
    score = judge(Match(), "42", gold(answer))
    assert score.status == "error" and isnan(score.value)
    assert "task 'row-7' has no answer" in score.explanation


def test_numeric() -> None:
    assert judge(Match(numeric="never"), "42.0").status == "wrong"
    assert judge(Match(numeric="never"), "42").status == "ok"
    assert judge(Match(numeric="always"), "42.0").status == "ok"
    assert judge(Match(numeric="always"), "Paris", gold("Paris")).status == "error"
    assert judge(Match(numeric="auto"), "007", gold("7")).status == "ok"


def test_tolerance_is_decimal() -> None:
    near = Match(tolerance=0.1)
    assert judge(near, "0.3", gold("0.2")).status == "ok"  # in floats, 0.3 - 0.2 < 0.1 < 0.4 - 0.3
    assert judge(near, "0.4", gold("0.3")).status == "ok"
    assert judge(near, "0.40001", gold("0.3")).status == "wrong"


def test_case_and_space() -> None:
    assert judge(Match(ignore_case=False), "paris", gold("Paris")).status == "wrong"
    assert judge(Match(ignore_space=False), "New  York", gold("New York")).status == "wrong"
    assert judge(Match(), "STRASSE", gold("straße")).status == "ok"


def test_rewards_are_chosen() -> None:
    match = Match(right=2.0, wrong=-0.5, missing=-1.0)
    assert [judge(match, text).value for text in ("42", "41", "")] == [2.0, -0.5, -1.0]


def test_a_huge_number_is_compared_as_text_without_work() -> None:
    assert judge(Match(), "9" * 5000, gold("9" * 5000)).status == "ok"
    assert judge(Match(), "1e999999999", SUM).status == "wrong"


def test_last_number_is_there_for_who_wants_it() -> None:
    text = "That makes $18 for 42 apples in all"
    assert judge(Match(), text).status == "wrong"
    assert judge(replace(Match(), extract=("boxed", "last_number")), text).status == "ok"


def test_where_numbers_are_demanded_words_are_no_answer() -> None:
    reward = Match(numeric="always", wrong=0.1, missing=0.0)
    assert judge(reward, "#### 41").value == 0.1
    assert judge(reward, "#### many").value == 0.0
    assert judge(Match(numeric="auto", wrong=0.1, missing=0.0), "#### many").value == 0.1


@pytest.mark.parametrize(
    ("answer", "completion"),
    [
        ("6", "1 + 5 = 6"),
        ("6", "First I add.\n\nThe answer is 1 + 5 = 6."),
        ("6", r"\boxed{2 \cdot 3 = 1 + 5 = 6}"),
        ("7", "Tom has 3 + 4 = 7 apples."),
        ("y + 1", "x = y + 1"),
        ("x = 6", "x = 6"),
    ],
)
def test_the_right_side_of_an_equation_is_its_answer(answer: str, completion: str) -> None:
    score = judge(Match(), completion, gold(answer))
    assert score.status == "ok", score.explanation


@pytest.mark.parametrize(
    ("answer", "completion"),
    [("6", "6 = 1 + 5 = 7"), ("6", "x = 5 or x = 6"), ("6", "x = 5, x = 6"), ("6", "y == 6"), ("b", "a <= b")],
)
def test_what_is_not_one_equation_has_no_right_side(answer: str, completion: str) -> None:
    assert judge(Match(), completion, gold(answer)).status == "wrong"


def test_equations_can_be_compared_whole() -> None:
    assert judge(Match(equation=False), "1 + 5 = 6", gold("6")).status == "wrong"


def test_each_text_of_a_list_is_right() -> None:
    task = gold('["New York", "NYC"]')
    assert [judge(Match(), text, task).status for text in ("nyc", "New York", "Boston")] == ["ok", "ok", "wrong"]
    assert "nor any of 1 other" in judge(Match(), "Boston", task).explanation
    assert judge(Match(lists="text"), "NYC", task).status == "wrong"


def test_a_list_of_numbers_is_one_answer_unless_it_is_set_otherwise() -> None:
    task = gold("[1, 2]")
    assert [judge(Match(), text, task).status for text in ("[1, 2]", "1")] == ["ok", "wrong"]
    assert [judge(Match(lists="any"), text, task).status for text in ("[1, 2]", "2")] == ["wrong", "ok"]


@pytest.mark.parametrize("answer", ["[]", '["x"', "[[1]]", '[{"a": 1}]'])
def test_what_only_looks_like_a_list_is_text(answer: str) -> None:
    assert judge(Match(), answer, gold(answer)).status == "ok"
