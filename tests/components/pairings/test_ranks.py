from posttrain.components.pairings.ranks import Ranks
from tests.components.pairings.given import pair, texts


def test_all_unequal_ranks_of_people_with_the_margin_of_the_reward() -> None:
    """Ranks 3, 1, 3: two pairs; the reward agrees with the people on the second one only."""
    found = pair(Ranks(), ("a", 0.5), ("b", 2.0), ("c", 4.0), ratings=(3, 1, 3))
    assert texts(found) == [("a", "b"), ("c", "b")]
    assert [one.fields["margin"] for one in found.pairs] == [-1.5, 2.0]


def test_without_ratings_the_scores_are_the_ranks() -> None:
    found = pair(Ranks(), ("a", 1.0), ("b", 4.0), ("c", 2.0))
    assert texts(found) == [("b", "a"), ("b", "c"), ("c", "a")]
    assert texts(pair(Ranks(most=1), ("a", 1.0), ("b", 4.0), ("c", 2.0))) == [("b", "a")]


def test_ties_are_no_pair() -> None:
    assert pair(Ranks(), ("a", 3.0), ("b", 3.0)).reason == "all rollouts score the same"
    assert pair(Ranks(), ("a", 3.0), ("a", 1.0)).reason == "all rollouts score the same"
