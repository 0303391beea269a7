"""Laws of the annotators, for every member on arrival."""

import math
from random import Random

import pytest

from posttrain.components.annotators import Annotator, Shown
from tests.conformance._members import members

every_member = pytest.mark.parametrize("annotator", members(Annotator))

PAIR = Shown(
    texts=("a longer text", "short"),
    traits={"polite": (1.0, 0.0), "text": (0.0, 2.0)},
    writers=("own", "other"),
    number=7,
)
SINGLE = Shown(texts=("one",), middle=3.0)


@every_member
@pytest.mark.parametrize("shown", [PAIR, SINGLE])
def test_an_opinion_is_finite_or_none_and_a_function_of_the_draws(annotator: Annotator, shown: Shown) -> None:
    for true in (-2.0, 0.0, 0.5, 1e6):
        found = [annotator.opinion(true, shown, Random(seed)) for seed in (0, 1, 2)]
        assert found == [annotator.opinion(true, shown, Random(seed)) for seed in (0, 1, 2)]
        assert all(one is None or math.isfinite(one) for one in found)


@every_member
def test_a_quotation_is_a_text(annotator: Annotator) -> None:
    assert isinstance(annotator.quotation("it is polite", Random(0)), str)


@every_member
def test_it_has_a_name(annotator: Annotator) -> None:
    assert annotator.name
