import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.grading.values import literal, parse, same, tree_of

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(PLAIN)
def test_a_value_is_itself_after_the_journey(value: Any) -> None:
    tree = tree_of(value)
    assert same(parse(json.dumps(tree).encode()), tree)


@given(st.binary())
def test_any_bytes_can_be_parsed_and_compared(line: bytes) -> None:
    assert same(parse(line), tree_of(42)) in (False, parse(line) == ["int", "0x2a"])


DIFFERENT: list[tuple[Any, Any]] = [
    (1, True), (0, False), (0, None), ("1", 1), (b"a", "a"), ([1], (1,)), ({1}, frozenset({1})), ([1], [1, 1]),
    ({}, []), (1, 1 + 1e-6), (2**100, 2**100 + 1), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (math.nan, 1.0),
    (math.inf, -math.inf),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_these_differ(a: Any, b: Any) -> None:
    assert not same(tree_of(a), tree_of(b), tolerance=0.0) and not same(tree_of(b), tree_of(a))


def test_numbers_are_compared_by_value_and_tolerance_is_relative() -> None:
    assert same(tree_of(2), tree_of(2.0)) and same(tree_of(math.nan), tree_of(math.nan))
    assert not same(tree_of(0.1 + 0.2), tree_of(0.3)) and same(tree_of(0.1 + 0.2), tree_of(0.3), tolerance=1e-9)
    assert same(tree_of(1e20), tree_of(1e20 + 1e10), tolerance=1e-9)
    assert not same(tree_of(1e-20), tree_of(2e-20), tolerance=1e-9)
    assert not same(tree_of(10**400), tree_of(1.0), tolerance=1e-9)


def test_order_counts_where_it_does() -> None:
    assert same(tree_of({3, 1, 2}), tree_of({1, 2, 3})) and not same(tree_of([3, 1]), tree_of([1, 3]))
    assert same(tree_of({"b": 1, "a": [2]}), tree_of({"a": [2], "b": 1}))
    assert same(tree_of((1, (2,))), tree_of([1, [2]]), loose=True) and not same(tree_of([1]), tree_of((1,)), loose=True)


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_a_class_that_equals_everything_equals_nothing() -> None:
    assert tree_of(Liar(1)) == ["other", "Liar"]
    assert not same(tree_of(Liar(1)), tree_of(1)) and not same(tree_of(Liar(1)), tree_of(Liar(1)))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[" * 100000,
        b'{"a":' * 100000,
        b"[1" + b"0" * 10000 + b"]",
        b"\xff\xfe",
        b"NaN",
        b'["int"]',
        b'["int", 5]',
        b'["int", "0x"]',
        b'["float", "1e999999"]',
        b'["list", "ab"]',
        b'["dict", [1]]',
        b'["dict", [[["int"], 1]]]',
        b"null",
    ],
)
def test_hostile_lines(line: bytes) -> None:
    for expected in (1, 1.0, "a", [1], {1: 2}, {1}, None):
        assert not same(parse(line), tree_of(expected))


def test_literals() -> None:
    for text in (
        "1",
        "-2.5",
        "'a'",
        "[1, (2, {3: None})]",
        "set([1, 2])",
        "set()",
        "frozenset({1})",
        "True",
        "{'a': {1}}",
    ):
        assert literal(text) == eval(text)
    assert math.isinf(literal("float('inf')"))
    for text in ("f(1)", "__import__('os')", "open('x')", "[x for x in y]", "1 if a else 2", "(" * 5000, "set(key=1)"):
        with pytest.raises(ValueError):
            literal(text)
