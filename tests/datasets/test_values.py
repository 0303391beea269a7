"""Values of data sets as JSON."""

from fractions import Fraction

import pytest

from posttrain.datasets.values import finite, plain


def test_fractions_are_whole_numbers_or_texts() -> None:
    assert plain({"share": Fraction(6, 3), "rest": [Fraction(-1, 3)]}) == {"share": 2, "rest": ["-1/3"]}
    assert type(plain(Fraction(2))) is int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2, 2.0),
        ("-1.5", -1.5),
        (" 3 ", 3.0),
        (float("inf"), None),
        ("nan", None),
        ("", None),
        (True, None),
        (None, None),
    ],
)
def test_a_number_of_a_field(value: object, expected: float | None) -> None:
    assert finite(value) == expected
