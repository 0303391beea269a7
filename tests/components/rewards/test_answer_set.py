"""Sets that answers state: yes or no, letters, items; and what the release rewards by mistake."""

import pytest

from posttrain.components.rewards.answer_set import AnswerSet
from posttrain.components.rewards.label import Label
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge


def of(answer: str | None) -> Task:
    return Task(key="t", prompt="?", answer=answer)


YES, AC, NAMES = of("yes"), of("AC"), of("blue circle, red square")
JUDGE, CHOICE, OPEN = AnswerSet(form="yes_no"), AnswerSet(form="letters"), AnswerSet()


@pytest.mark.parametrize(
    ("text", "value"),
    {"yes": 1, "TRUE": 1, "It is correct.": 1, "no": 0, "incorrect": 0, "yes and no": 1, "yesterday": 0, "": 0}.items(),
)
def test_yes_or_no_as_whole_words(text: str, value: float) -> None:
    assert judge(JUDGE, f"<think>no</think><answer>{text}</answer>", YES).value == value


def test_no_is_the_answer_where_only_no_is_there() -> None:
    assert judge(JUDGE, "<answer>false</answer>", of("no")).value == 1.0
    assert judge(JUDGE, "<answer>incorrect</answer>", of("no")).value == 1.0, "no part of a word is a word"
    assert judge(JUDGE, "yes and no", of("no")).value == 0.0, "yes wins; the whole text, without a tag"
    assert judge(JUDGE, "<answer></answer>", of("no")).value == 0.0, "an empty answer is none of the two"


@pytest.mark.parametrize(
    ("text", "value"),
    {"AC": 1, "C, A": 1, "A C A": 1, "A": 0.2, "(C)": 0.2, "AB": 0, "A, B, C": 0, "": 0, "CAT": 0, "a c": 0}.items(),
)
def test_letters_are_a_set(text: str, value: float) -> None:
    assert judge(CHOICE, f"<answer>{text}</answer>", AC).value == value


def test_a_part_of_the_letters_is_a_setting() -> None:
    assert judge(AnswerSet(form="letters", partial=0.0), "<answer>A</answer>", AC).value == 0.0
    assert judge(CHOICE, "<answer>A</answer>", AC).status == "wrong"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("red square, blue circle", 1), ("Red  Square; blue circle", 1), ("red square\nblue circle\n", 1)),
        *(("red square", 1 / 2), ("red square, red square", 1 / 2), ("red square, green circle", 1 / 3)),
        *(("square", 0), ("", 0), (", ,", 0)),
    ],
)
def test_items_have_the_overlap_of_two_sets(text: str, value: float) -> None:
    score = judge(OPEN, f"<answer>{text}</answer>", NAMES)
    assert score.value == pytest.approx(value) and (score.status == "ok") == (value == 1)


def test_what_the_released_rule_rewards_has_nothing() -> None:
    released = Label(match="containment", empty=True)
    for text in ("", "r", "square"):
        assert judge(released, f"<answer>{text}</answer>", NAMES).value == 1.0
        assert judge(OPEN, f"<answer>{text}</answer>", NAMES).value == 0.0


@pytest.mark.parametrize(("rule", "answer"), [(JUDGE, "maybe"), (CHOICE, "none"), (OPEN, " , "), (OPEN, None)])
def test_references_of_another_form_are_refused(rule: AnswerSet, answer: str | None) -> None:
    with pytest.raises(UserError, match="give its row another one"):
        rule.check([of(answer)])
    assert judge(rule, "yes", of(answer)).status == "error"
