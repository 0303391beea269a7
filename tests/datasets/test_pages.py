"""People, their friends, and BM25 by hand."""

import math

import pytest

from posttrain.datasets.pages import MOST, Index, pages


def test_people_are_the_same_whatever_the_size() -> None:
    few, many = pages(10), pages(MOST)
    assert [p.name for p in few] == [p.name for p in many[:10]] and len({p.name for p in many}) == MOST
    assert all(p.friend in {q.name for q in few} - {p.name} for p in few)


def test_bm25_by_hand() -> None:
    """Two texts of two words: with the mean length the factor is 2.5 f / (f + 1.5); 'a' stands in one of the two."""
    index = Index(["a b", "b c"])
    assert index.score("A", 0) == pytest.approx(math.log(1 + 1.5 / 1.5) * 2.5 / 2.5)
    assert index.score("b", 0) == pytest.approx(math.log(1 + 0.5 / 2.5))
    assert index.best("c b") == 1 and index.best("b") == 0, "of equals the first"
    assert index.best("x") is None and index.best("") is None and Index([]).best("a") is None


def test_a_name_finds_its_page() -> None:
    people = pages(40)
    index = Index([p.text for p in people])
    assert all(
        people[index.best(p.name) or 0].name in (p.name, *[q.name for q in people if q.friend == p.name])
        for p in people
    )
