from hypothesis import given
from hypothesis import strategies as st

from posttrain.viewer.differences import MOST_WORDS, Part, difference, words


def pairs(parts: list[Part]) -> list[tuple[str, str]]:
    return [(part.kind, part.text) for part in parts]


def test_by_words() -> None:
    assert pairs(difference("the answer is 12.", "the sum is 12!")) == [
        ("same", "the "),
        ("gone", "answer"),
        ("new", "sum"),
        ("same", " is 12"),
        ("gone", "."),
        ("new", "!"),
    ]


def test_nothing_and_everything() -> None:
    assert difference("", "") == []
    assert pairs(difference("a b", "a b")) == [("same", "a b")]
    assert pairs(difference("", "a")) == [("new", "a")]
    assert pairs(difference("a", "")) == [("gone", "a")]


def test_long_texts_go_by_lines() -> None:
    line = "word " * 100 + "\n"
    before = line * 40
    after = before + "one more\n"
    assert len(words(before)) > MOST_WORDS
    assert pairs(difference(before, after)) == [("same", before), ("new", "one more\n")]


@given(st.text(), st.text())
def test_both_texts_can_be_reconstructed(before: str, after: str) -> None:
    parts = difference(before, after)
    assert "".join(part.text for part in parts if part.kind != "new") == before
    assert "".join(part.text for part in parts if part.kind != "gone") == after
    assert all(part.text for part in parts)
