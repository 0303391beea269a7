"""Splitters, by hand."""

from time import perf_counter

import numpy as np
import pytest

from posttrain.grading.pieces import Split, ranges_of, tokens_until

CASES: list[tuple[Split, str, list[str]]] = [
    ("sentences", "It is 3.5 here. Really?! Yes\nso it is", ["It is 3.5 here.", "Really?!", "Yes", "so it is"]),
    ("sentences", "  \n \n", []),
    ("sentences", "no end", ["no end"]),
    ("lines", "a b\n\n c \n", ["a b", "c"]),
    ("steps", " 4+3=7; 7-2=5\n#### 5", ["4+3=7;", "7-2=5", "#### 5"]),
    ("episodes", "a\n\nb\n\nc\n\nWait, d\n\ne", ["a\n\nb\n\nc", "Wait, d\n\ne"]),
    # a keyword within two paragraphs of the start of an episode begins none, nor does one within a paragraph
    (
        "episodes",
        "a\n\nAlternatively b\n\nBut wait, c\n\nd wait\n\ne",
        ["a\n\nAlternatively b\n\nBut wait, c\n\nd wait\n\ne"],
    ),
    ("episodes", "a\nWait\n\nb\n\nc\n \nBUT HOLD ON", ["a\nWait\n\nb\n\nc", "BUT HOLD ON"]),
    ("episodes", "\n\n", []),
    ("whole", "  a. b.\n", ["a. b."]),
    ("tags", "so <think>a</think> x\n<answer>b</answer>", ["<think>a</think>", "<answer>b</answer>"]),
    # the outermost block, up to the first tag that closes it; one that is not closed is none
    ("tags", "<a><b>1</b></a><b>2</b>", ["<a><b>1</b></a>", "<b>2</b>"]),
    ("tags", "<a><b>1</b> </c> a < b > c <a>", ["<b>1</b>"]),
    ("tags", "<a>1<a>2</a>3</a>", ["<a>1<a>2</a>"]),
    ("tags", "no tag", []),
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


def test_tags_that_nothing_closes_take_linear_time() -> None:
    begin = perf_counter()
    assert ranges_of("<a>" * 200_000 + "</b>" * 200_000, "tags", 99) == []
    assert perf_counter() - begin < 10.0


def test_the_last_part_has_the_rest() -> None:
    text = "a. b. c. d."
    assert [text[a:b] for a, b in ranges_of(text, "sentences", 2)] == ["a.", "b. c. d."]
    assert [text[a:b] for a, b in ranges_of(text, "sentences", 1)] == [text]


def test_tokens_until_a_place_of_the_text() -> None:
    """Tokens of two letters: the first four letters are two of them, and so are the first three."""
    ids = np.arange(4)
    found = [tokens_until(ids, end, lambda own: "ab" * len(own)) for end in (0, 1, 3, 4, 8, 99)]
    assert found == [0, 1, 2, 2, 4, 4]
