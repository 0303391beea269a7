"""Which entities of a paragraph are masked, by hand."""

from collections import Counter
from random import Random

from posttrain.datasets.masking import MASK, candidates, masked

TEXT = "Ana of Ulm met Bo in 1907, and Bo left Kesh for the New Old Town."
ENTITIES = ["Ana", "Ulm", "Bo", "1907", "Kesh", "New Old Town", "Ulm", "Rome"]


def test_entities_that_stand_once_and_are_no_title() -> None:
    """Bo stands twice, Rome never, Ulm is listed twice, Ana is the title."""
    assert candidates("ana", TEXT, ENTITIES) == ["Ulm", "1907", "Kesh", "New Old Town"]


def test_masks_restore_and_are_counted() -> None:
    counts = Counter[int]()
    for seed in range(300):
        made = masked("Ana", TEXT, ENTITIES, Random(seed))
        assert made is not None and made.whole == TEXT and made.text.startswith("Ana of ")
        assert made.text.count(MASK) == made.masks and "Bo left" in made.text
        counts[made.masks] += 1
    assert set(counts) == {1, 2, 3, 4}, "four draws with replacement"


def test_weights_are_words_and_numbers_have_the_largest() -> None:
    """Weights 1, 3, 1 and 3 of 8: Ulm is in none of four draws in (7/8)^4 = 0.586, 1907 in (5/8)^4 = 0.153."""
    made = [masked("Ana", TEXT, ENTITIES, Random(seed)) for seed in range(2000)]
    kept = [sum(word in m.text for m in made if m) / len(made) for word in ("Ulm", "1907", "Kesh", "New Old Town")]
    assert all(abs(a - b) < 0.04 for a, b in zip(kept, (0.586, 0.153, 0.586, 0.153), strict=True))


def test_how_many_are_drawn_of_few() -> None:
    """Of three, three draws; of two, one or two; of one, one; of none, no paragraph."""
    three = {masked("t", "t a b c", ["a", "b", "c"], Random(s)).masks for s in range(60)}  # type: ignore[union-attr]
    two = {masked("t", "t a b", ["a", "b"], Random(s)).masks for s in range(60)}  # type: ignore[union-attr]
    assert three == {1, 2, 3} and two == {1, 2}
    assert masked("t", "t a", ["a"], Random(0)).masks == 1  # type: ignore[union-attr]
    assert masked("t", "t a a", ["a", "t"], Random(0)) is None


def test_the_title_is_put_in_front_and_no_paragraph_begins_with_a_mask() -> None:
    made = masked("Ana", "She is of Ulm.", ["Ulm"], Random(0))
    assert made is not None and (made.whole, made.text) == ("Ana: She is of Ulm.", "Ana: She is of [mask].")
    assert masked("Ana", "Ulm is the town of Ana.", ["Ulm"], Random(0)) is None
