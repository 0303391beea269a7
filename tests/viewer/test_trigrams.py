"""Files of the index that are passed over: never one with a match."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.viewer.trigrams import TEXTS, bits, literals, may_match, packed, unpacked


@pytest.mark.parametrize(
    ("pattern", "required"),
    [
        ("zebra", [b"zebra"]),
        (r"#### 1\d\d", [b"#### 1"]),
        ("^the end$", [b"the end"]),
        ("colou?rs", [b"colo"]),
        ("hundreds*", [b"hundred"]),
        ("hundreds+ of", [b"hundreds", b" of"]),
        ("loo{2,3}ong", [b"ong"]),
        (r"3\.14", [b"3.14"]),
        ("(apple)?s and pears", [b"s and pears"]),
        ("[abc]def[^]x]ghi", [b"def", b"ghi"]),
        ("größer", ["größer".encode()]),
        (r"one\btwo", [b"one", b"two"]),
        ("apples|pears", []),
        ("(?i)apples", []),
        (r"\Q...\E", []),
        ("ab", []),
        ("", []),
    ],
)
def test_what_every_match_contains(pattern: str, required: list[bytes]) -> None:
    assert literals(pattern) == required


def test_texts_that_lack_a_literal_cannot_match() -> None:
    found = bits(["the zebra", "and the horse"])
    assert may_match(found, [b"zebra", b"horse"]) and may_match(found, [])
    assert not may_match(found, [b"zebra", b"giraffe"])


PIECES = st.sampled_from(
    [
        *("abc", "[ab]", "[^a]", "(a|b)", "(ab)", "{2}", "{1,}", "(?:ab)", "(?i)", "[[:alpha:]]", "+?"),
        *(r"\.", r"\d", r"\b", r"\x61", r"\Q", r"\E"),
        *"abc.$^\\[]()|?*+{} 1é",
    ]
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=10).map("".join), st.lists(st.text("abc1é. ABC[](){}?", max_size=12), max_size=4))
def test_nothing_that_matches_is_passed_over(pattern: str, texts: list[str]) -> None:
    """Against the library that searches: where a text matches, no literal that is missing in it was required."""
    with duckdb.connect() as connection:
        try:
            matched = [connection.execute("SELECT regexp_matches(?, ?)", [t, pattern]).fetchone() for t in texts]
        except duckdb.Error:
            return
    if (True,) in matched:
        assert may_match(bits(texts), literals(pattern))


def test_what_stands_beside_a_table_is_taken_whole_or_not_at_all() -> None:
    one = bits(["the zebra"])
    content = packed(b"table", [one] * len(TEXTS))
    unpacked_again = unpacked(content)
    assert unpacked_again is not None and all((own == one).all() for own in unpacked_again[1].values())
    assert unpacked(content[:-1]) is None
    flipped = bytearray(content)
    flipped[100] ^= 1
    assert unpacked(bytes(flipped)) is None
