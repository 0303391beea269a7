from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.grading.expressions import MAX_LENGTH, evaluate, numbers_used, operations

trees = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
        inner.map(lambda t: f"(-{t})"),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("10-4-3", 3),
        ("24/4/3", 2),
        ("1/3+1/6", Fraction(1, 2)),
        (" ( 1 + 2 ) * 3 ", 9),
        ("-3+5", 2),
        ("2*-3", -6),
        ("2--3", 5),
        ("-2*-(1+2)", 6),
        ("6÷2×3−1", 8),
        ("007", 7),
    ],
)
def test_values(text: str, value: int | Fraction) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 2",
        "1+",
        "*2",
        "+2",
        "(1",
        "1)",
        "()",
        "3(4)",
        "(3)4",
        "2**3",
        "1.5",
        "x",
        "1=1",
        "٣+1",
        "1,000",
        ")(",
    ],
)
def test_what_is_no_expression(text: str) -> None:
    assert evaluate(text) is None
    assert numbers_used(text) is None


def test_division_by_zero_is_an_expression_without_a_value() -> None:
    assert evaluate("4/(2-2)") is None
    assert numbers_used("4/(2-2)") == [4, 2, 2]


def test_numbers_are_listed_in_order_with_repetitions() -> None:
    assert numbers_used("(3+3)*25-1") == [3, 3, 25, 1]


def test_length_is_limited_and_depth_is_not_recursion() -> None:
    depth = (MAX_LENGTH - 1) // 2
    assert evaluate("(" * depth + "1" + ")" * depth) == 1
    assert evaluate("-" * (MAX_LENGTH - 1) + "1") == -1
    assert evaluate("1" * MAX_LENGTH) == int("1" * MAX_LENGTH)
    assert evaluate("1" * (MAX_LENGTH + 1)) is None


@given(trees)
def test_agrees_with_python_on_fractions(text: str) -> None:
    import re

    try:
        expected = eval(re.sub(r"(\d+)", r"Fraction(\1)", text), {"Fraction": Fraction})
    except ZeroDivisionError:
        expected = None
    assert evaluate(text) == (expected if len(text) <= MAX_LENGTH else None)


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text(alphabet="0123456789+-*/() ×÷", max_size=40)))
def test_any_text_gives_a_value_or_nothing(text: str) -> None:
    value, numbers = evaluate(text), numbers_used(text)
    assert value is None or numbers is not None


@pytest.mark.parametrize("thing", [None, 3, b"1+1", ["1"]])
def test_things_that_are_no_text_are_no_expression(thing: object) -> None:
    assert evaluate(thing) is None  # type: ignore[arg-type]
    assert numbers_used(thing) is None  # type: ignore[arg-type]


def test_operations_in_the_order_in_which_they_are_done() -> None:
    found = operations("5*(3+2)-4/2")
    assert [tuple(map(str, step)) for step in found or ()] == [
        ("3", "+", "2", "5"),
        ("5", "*", "5", "25"),
        ("4", "/", "2", "2"),
        ("25", "-", "2", "23"),
    ]
    assert operations("7") == [] and operations("1/0") is None and operations("x") is None
