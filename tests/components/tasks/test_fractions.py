"""Fractions: three forms of one value, checked by Python's fractions."""

from fractions import Fraction

import pytest

from posttrain.components.tasks.fractions import Fractions, forms_of, in_words


@pytest.mark.parametrize("level", range(1, 6))
def test_all_forms_of_the_answer_are_the_value_of_the_prompt(level: int) -> None:
    for task in Fractions(size=200, level=level).load():
        assert isinstance(task.prompt, str) and task.answer in task.fields["forms"]
        terms = task.prompt.removeprefix("Q: ").removesuffix("\nA:").split("+")
        value = sum(map(Fraction, terms))
        fraction, decimal, words = task.fields["forms"]
        assert Fraction(fraction) == value == Fraction(decimal)
        numerator, denominator = map(int, fraction.split("/"))
        assert (numerator, denominator, words) == (numerator, int(terms[0].split("/")[1]), in_words_of(fraction))


def in_words_of(fraction: str) -> str:
    numerator, denominator = map(int, fraction.split("/"))
    return forms_of(numerator, denominator)[2]


def test_words() -> None:
    assert forms_of(19, 10) == ("19/10", "1.9", "nineteen tenths")
    assert forms_of(1, 2) == ("1/2", "0.5", "one half") and forms_of(3, 2)[2] == "three halves"
    assert in_words(342) == "three hundred forty-two" and in_words(1005) == "one thousand five"


def test_hedged_demonstrations_name_the_right_value_among_two() -> None:
    for task in Fractions(size=50, hedged=1.0).load():
        boxed = task.demonstrations[0].split("boxed{")[1].removesuffix("}").split(" or ")
        assert len(boxed) == 2 and sum(form in task.fields["forms"] for form in boxed) == 1
