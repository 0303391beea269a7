"""Splitters, by hand."""

import pytest

from posttrain.grading.pieces import Split, ranges_of

CASES: list[tuple[Split, str, list[str]]] = [
    ("sentences", "It is 3.5 here. Really?! Yes\nso it is", ["It is 3.5 here.", "Really?!", "Yes", "so it is"]),
    ("sentences", "  \n \n", []),
    ("sentences", "no end", ["no end"]),
    ("lines", "a b\n\n c \n", ["a b", "c"]),
    ("steps", " 4+3=7; 7-2=5\n#### 5", ["4+3=7;", "7-2=5", "#### 5"]),
    ("whole", "  a. b.\n", ["a. b."]),
    # five words remain after the comma, and five are before it
    ("sub_sentences", "a b c d e, f g h i j.", ["a b c d e,", "f g h i j."]),
    # four words remain: no cut
    ("sub_sentences", "a b c d e, f g h i.", ["a b c d e, f g h i."]),
    # a piece of two words is joined to its neighbour
    ("sub_sentences", "a b, c d e f g h, i j k l m.", ["a b, c d e f g h,", "i j k l m."]),
    ("sub_sentences", "a b c d e; f, g h i j k l.", ["a b c d e; f,", "g h i j k l."]),
]


@pytest.mark.parametrize(("split", "text", "parts"), CASES)
def test_by_hand(split: Split, text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in ranges_of(text, split, 99)] == parts


def test_the_last_part_has_the_rest() -> None:
    text = "a. b. c. d."
    assert [text[a:b] for a, b in ranges_of(text, "sentences", 2)] == ["a.", "b. c. d."]
    assert [text[a:b] for a, b in ranges_of(text, "sentences", 1)] == [text]
