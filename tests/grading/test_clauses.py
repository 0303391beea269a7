"""Similarity of texts by clauses: by hand, without clauses, and its range."""

import math

import pytest

from posttrain.grading.clauses import clauses, similarity


def test_clauses() -> None:
    assert clauses(" No,  it is ARSON.\nAsk someone else! ") == ("no", "it is arson", "ask someone else")
    assert clauses(" ;, \n") == clauses("") == ()


def test_by_hand() -> None:
    # " a ": pieces " " twice, "a", " a", "a ", " a "; " b " shares only the space: 2 x 2 of 4 + 1 + 1 + 1 + 1
    assert similarity("a", "b") == pytest.approx(4 / 8)
    assert similarity("a", "a; b") == 1.0, "the best clause counts"
    assert similarity("a; b", "a") == pytest.approx((1 + 4 / 8) / 2), "each clause of the first text counts alike"
    # " aa ": " " 2, "a" 2, " a", "aa", "a ", " aa", "aa ": 13 squares; with " a ": 2 x 2 + 2 x 1 + 1 + 1 = 8
    assert similarity("a", "aa") == pytest.approx(8 / math.sqrt(8 * 13))


def test_without_clauses_it_is_zero_and_it_is_never_beyond_one() -> None:
    assert similarity("", "a") == similarity("a", "...") == 0.0
    texts = ["no", "No: crime", "red apple tree", "no no no", "!", "apple, apple"]
    assert all(0.0 <= similarity(a, b) <= 1.0 for a in texts for b in texts)
    assert similarity("No: Crime", "no: crime!") == 1.0
