from posttrain.components.pairings.extremes import Extremes
from tests.components.pairings.given import pair, texts

FOUR = (("a", 2.0), ("b", 5.0), ("c", 5.0), ("d", 1.0))


def test_the_first_best_and_the_first_worst() -> None:
    found = pair(Extremes(), *FOUR, ("e", 1.0), ("f", None))
    assert texts(found) == [("b", "d")]
    fields = found.pairs[0].fields
    assert fields["margin"] == 4.0
    assert fields["origin"] == [
        {"writer": "policy", "sample": 1, "value": 5.0},
        {"writer": "policy", "sample": 3, "value": 1.0},
    ]


def test_ties_are_no_pair() -> None:
    assert pair(Extremes(), ("a", 3.0), ("b", 3.0)).reason == "all rollouts score the same"
    assert pair(Extremes(), ("a", 3.0), ("a", 1.0)).reason == "all rollouts score the same"
