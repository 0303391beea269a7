import pytest

from posttrain.components.pairings.best_and_lower import BestAndLower
from tests.components.pairings.given import Drawing, pair, texts

FOUR = (("a", 2.0), ("b", 5.0), ("c", 5.0), ("d", 1.0))


@pytest.mark.parametrize(("number", "rejected"), [(0.0, "a"), (0.49, "a"), (0.5, "d"), (0.99, "d")])
def test_a_random_lower_one(number: float, rejected: str) -> None:
    """Of a and d, never of the other best one."""
    found = pair(BestAndLower(), *FOUR, sampler=Drawing(number))  # type: ignore[arg-type]
    assert texts(found) == [("b", rejected)]


def test_an_empty_best_answer_is_dropped() -> None:
    assert pair(BestAndLower(), ("", 5.0), ("b", 1.0)).reason == "the best text is empty"


def test_ties_are_no_pair() -> None:
    assert pair(BestAndLower(), ("a", 3.0), ("b", 3.0)).reason == "all rollouts score the same"
    assert pair(BestAndLower(), ("a", 3.0), ("a", 1.0)).reason == "all rollouts score the same"
