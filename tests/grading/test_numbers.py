from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.grading.numbers import Number, read_number, same_number, unwrapped


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("42", 42, ""),
        ("+42.0", 42, ""),
        ("-3.50", Fraction(-7, 2), ""),
        ("−3", -3, ""),
        (".5", Fraction(1, 2), ""),
        ("5.", 5, ""),
        ("1,234,567.25", Fraction(4938269, 4), ""),
        ("3/4", Fraction(3, 4), ""),
        ("-6 / 8", Fraction(-3, 4), ""),
        (r"\frac{3}{4}", Fraction(3, 4), ""),
        (r"-\dfrac34", Fraction(-3, 4), ""),
        ("1.2e-3", Fraction(3, 2500), ""),
        ("2E3", 2000, ""),
        ("$5", 5, ""),
        ("-$5.50", Fraction(-11, 2), ""),
        (r"\$1{,}000", 1000, ""),
        ("5 €", 5, ""),
        ("50%", 50, ""),
        (r"50\%", 50, ""),
        (r"90^\circ", 90, ""),
        ("5 km/h", 5, "km/h"),
        (r"5\text{ cm}^2", 5, "cm^2"),
        ("12 Square Feet", 12, "square feet"),
        ("x = 5", 5, ""),
        (r"\(5\)", 5, ""),
        ("**5**", 5, ""),
        ('"5."', 5, ""),
    ],
)
def test_what_is_read(text: str, value: Fraction | int, unit: str) -> None:
    assert read_number(text) == Number(Fraction(value), unit)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-",
        "five",
        "5 or 6",
        "1, 2, 3",
        "1,23",
        "12,34,567",
        "1 1/2",
        r"2\frac{1}{2}",
        "1/0",
        "1.2.3",
        "--5",
        "+-5",
        "5-6",
        "4 2",
        "0x10",
        "²",
        "４２",
        "٤٢",
        "\x0042",
        "1/2/3",
        "42 is not what I would say",
    ],
)
def test_what_is_not(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("text", ["9" * 1001, "1e1001", "1e-1001", "1e999999999", "1e" + "9" * 20])
def test_work_is_bounded_by_refusing_what_is_huge(text: str) -> None:
    assert read_number(text) is None


def test_the_largest_that_is_read() -> None:
    assert read_number("9" * 1000) == Number(Fraction(10**1000 - 1))
    assert read_number("1e1000") == Number(Fraction(10**1000))


@settings(deadline=None)
@given(st.fractions(max_denominator=10**6))
def test_every_fraction_reads_as_itself(value: Fraction) -> None:
    assert read_number(str(value)) == Number(value)


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_every_decimal_reads_as_itself(value: object) -> None:
    assert read_number(f"{value:f}") == Number(Fraction(str(value)))


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    read_number(text)
    unwrapped(text)


def test_a_unit_counts_only_where_the_reference_has_one() -> None:
    five, five_cm, five_km = Number(Fraction(5)), Number(Fraction(5), "cm"), Number(Fraction(5), "km")
    assert same_number(five_cm, five, Fraction(0))
    assert same_number(five_cm, five_cm, Fraction(0))
    assert not same_number(five_km, five_cm, Fraction(0))
    assert not same_number(five, five_cm, Fraction(0))


def test_tolerance_is_a_largest_difference() -> None:
    assert same_number(Number(Fraction("3.15")), Number(Fraction("3.14")), Fraction("0.01"))
    assert not same_number(Number(Fraction("3.1501")), Number(Fraction("3.14")), Fraction("0.01"))


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("**B**", "B"),
        ("(B)", "B"),
        ("(B).", "B"),
        ("$x$", "x"),
        ("`a.b`", "a.b"),
        ("“yes”.", "yes"),
        ("***", "***"),
        ("(a, b)", "(a, b)"),
        ("Dr.", "Dr"),
        ("", ""),
    ],
)
def test_what_surrounds_an_answer(text: str, inner: str) -> None:
    assert unwrapped(text) == inner
