import pytest
from pydantic import ValidationError

from posttrain.components.pairings.bands import Bands
from posttrain.types import Task
from tests.components.pairings.given import Drawing, pair

RULE = Bands(ends=(2, 5), counts=(1, 2))


def query(ranked: object, relevant: tuple[str, ...] = ("d1",)) -> Task:
    return Task(key="q", prompt="P:", demonstrations=relevant, fields={"ranked": ranked})


def test_a_number_of_each_band_without_the_relevant_ones() -> None:
    """Ranks 1 and 2 without d1 leave d9; of ranks 3 to 5 the last is drawn, then the first of the two left."""
    found = pair(RULE, task=query(["d1", "d9", "d2", "d3", "d4", "d5"]), sampler=Drawing(0.0, 0.0, 0.9, 0.0))  # type: ignore[arg-type]
    assert [(one.chosen, one.rejected, one.fields["rank"], one.fields["band"]) for one in found.pairs] == [
        ("d1", "d9", 2, 2),
        ("d1", "d4", 5, 5),
        ("d1", "d2", 3, 5),
    ]


def test_the_positive_is_drawn_from_the_relevant_ones() -> None:
    task = query(["a", "b", "c", "d", "e"], ("d1", "d7"))
    found = pair(RULE, task=task, sampler=Drawing(0.7, 0.0, 0.0, 0.0))  # type: ignore[arg-type]
    assert {one.chosen for one in found.pairs} == {"d7"}


@pytest.mark.parametrize(
    ("ranked", "relevant", "reason"),
    [
        (["d1", "d1", "a", "b"], ("d1",), "too few negatives in a band"),
        (["a", "b", "c"], ("d1",), "too few negatives in a band"),
        ("a b c", ("d1",), "no list of texts in the column 'ranked'"),
        (["a"] * 5, (), "no relevant text"),
    ],
)
def test_a_query_is_dropped(ranked: object, relevant: tuple[str, ...], reason: str) -> None:
    assert pair(RULE, task=query(ranked, relevant), sampler=Drawing(*[0.0] * 9)).reason == reason  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"ends": (5, 2)}, {"counts": (1,)}])
def test_wrong_bands(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValidationError, match="ends must rise"):
        Bands(**{"ends": (2, 5), "counts": (1, 2), **wrong})
