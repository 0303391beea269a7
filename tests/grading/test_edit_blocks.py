"""Edit blocks are read and applied by the rules of the sheet, and changes compared as it states."""

import difflib
from random import Random

import pytest

from posttrain.grading.edit_blocks import (
    Malformed,
    blocks_of,
    changes,
    edited,
    edits_of,
    matcher,
    similarity,
    written_edits,
)


def block(path: str, search: str, replacement: str) -> str:
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n```"


def completion(*blocks: str, thought: str = "so") -> str:
    return f"<think>{thought}</think><solution>\n" + "\n".join(blocks) + "\n</solution>"


FINE = completion(block("a", "x", "y"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "<think>"),
        (FINE.replace("</think>", ""), "</think>"),
        (FINE + "<solution>", "2 times"),
        (completion(block("a", "x", "y"), thought=" \n"), "thought"),
        (completion("x = 1"), "no edit block"),
        (completion(block("a", "x", "y").replace("### ", "")), "no edit block"),
        (completion(block("a", "x", "y").replace("=======", "======")), "no edit block"),
    ],
)
def test_what_has_no_form(text: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        edits_of(text)


def test_blocks_by_hand() -> None:
    two = f"Text.\n{block('a', 'x', 'y')}\nMore.\n```\nnone\n```\n{block('b/c', '', 'z')} after the fence"
    assert blocks_of(two) == [("a", "x", "y"), ("b/c", "", "z")]
    assert blocks_of(block("a", "x\nx", "")) == [("a", "x\nx", "")]


def test_matches_begin_a_line_and_all_are_replaced() -> None:
    files = {"a": "ab\nb\nab\n"}
    assert edited(files, [("a", "ab", "c")]) == {"a": "c\nb\nc\n"}
    assert edited(files, [("a", "b", "c")]) == {"a": "ab\nc\nab\n"}
    assert edited(files, [("a", "ab", "b"), ("a", "b", "c")]) == {"a": "c\nc\nc\n"}
    assert edited(files, [("new", "", "c")]) == {"new": "c\n"[:-1]}
    for wrong in [("a", "x", "y"), ("a", "ab", "ab"), ("other", "ab", "c")]:
        with pytest.raises(Malformed):
            edited(files, [wrong])


def test_growth_is_bounded() -> None:
    with pytest.raises(Malformed, match="more than"):
        edited({"a": "\n" * 10_000}, [("a", "", "x" * 1000)])


def test_changes_and_means_by_hand() -> None:
    before, after = {"a": "1\n2\n3", "b": "x"}, {"a": "1\n9\n3", "b": "x"}
    assert changes(before, after) == {"a": "@@ -1,3 +1,3 @@\n 1\n-2\n+9\n 3"}
    ratio = matcher()
    assert similarity({}, {}, ratio) == 1.0
    assert similarity({"a": "x"}, {"b": "x"}, ratio) == 0.0
    assert similarity({"a": "x"}, {"a": "x", "b": "y"}, ratio) == 0.5
    assert similarity({"a": "x", "b": "y", "c": "z"}, {"a": "x", "b": "y"}, ratio) == pytest.approx(2 / 3)
    assert ratio("abcd", "abxd") == 0.75


def test_ratio_is_that_of_difflib() -> None:
    rng, ratio = Random(0), matcher()
    for _ in range(500):
        text, other = ("".join(rng.choices("ab +-\n", k=rng.randint(0, 60))) for _ in range(2))
        assert ratio(text, other) == difflib.SequenceMatcher(None, text, other, autojunk=False).ratio()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nx\nc\n"),
        ("a\na\na\n", "a\na\nb\n"),
        ("a\nb\n", "a\nnew\nb\n"),
        ("b\n", "new\nb\n"),
        ("a\nb\n", "a\n"),
        ("a\nb", "a\nb\n"),
        ("a\n", ""),
        ("ab\na\n", "ab\nc\n"),
        (None, "x\ny\n"),
        ("a\n\n\nb\n", "a\n\nb\n"),
    ],
)
def test_written_edits_make_the_files(before: str | None, after: str) -> None:
    files = {} if before is None else {"a.py": before}
    blocks = blocks_of(written_edits(files, {"a.py": after}))
    assert edited(files, blocks) == {"a.py": after}
    assert written_edits({"a.py": after}, {"a.py": after}) == ""
