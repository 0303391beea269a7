"""Values of data sets as JSON."""

from fractions import Fraction

from posttrain.datasets.values import plain


def test_fractions_are_whole_numbers_or_texts() -> None:
    assert plain({"share": Fraction(6, 3), "rest": [Fraction(-1, 3)]}) == {"share": 2, "rest": ["-1/3"]}
    assert type(plain(Fraction(2))) is int
