"""Rules by hand: what they forbid, which are thrown out, and which few explain the failures."""

from collections.abc import Set as AbstractSet

import pytest

from posttrain.statistics.action_rules import Foresight, Rule, RuleBook, Transition, greedy_cover, parsed, words_of


def tried(state: str, action: str, worked: bool, predicted: bool = True) -> Transition:
    return Transition(words=words_of(state), action=action, worked=worked, predicted=predicted)


def texts(book: RuleBook) -> list[str]:
    return [rule.text for rule in book.rules]


def test_a_rule_forbids_one_action_where_words_are_there_and_others_are_not() -> None:
    rule = parsed("cut if dark, not saw")
    assert rule == Rule(action="cut", present=frozenset({"dark"}), absent=frozenset({"saw"}))
    assert rule.text == "cut if dark, not saw" and parsed(rule.text) == rule
    assert rule.forbids({"dark", "rain"}, " cut\n") and not rule.forbids({"dark", "saw"}, "cut")
    assert not rule.forbids({"rain"}, "cut") and not rule.forbids({"dark"}, "glue")


@pytest.mark.parametrize("text", ["cut", "cut if ", " if dark", "cut if dark, "])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match="a rule is written"):
        parsed(text)


def test_words_of_a_state() -> None:
    assert words_of("k2, door:shut. (rusty)\n") == {"k2", "door:shut", "rusty"}


def test_a_failed_action_teaches_a_rule_and_a_success_throws_it_out_for_ever() -> None:
    first = RuleBook().learned([tried("dark rain", "cut", False)])
    assert texts(first) == ["cut if dark"], "the first of equals: short, and in the order of words"
    second = first.learned([tried("dark sun", "cut", True)])
    assert texts(second) == ["cut if rain"] and "cut if dark" in second.refuted
    assert RuleBook(rules=first.rules, refuted=second.refuted).learned([tried("dark rain", "cut", False)]).rules == (
        Rule(action="cut", present=frozenset({"rain"})),
    )


def test_two_conditions_where_one_is_not_enough() -> None:
    states = {"a b": False, "a": True, "b": True, "a c": True, "b c": True, "a b c": False, "c": True}
    seen = [tried(state, "x", worked) for state, worked in states.items()]
    assert texts(RuleBook().learned(seen)) == ["x if a, b"]
    assert texts(RuleBook().learned(seen, conditions=1)) == []


def test_failures_that_were_foreseen_are_not_covered() -> None:
    assert not RuleBook().learned([tried("dark", "cut", False, predicted=False)]).rules


def test_a_rule_that_raises_is_thrown_out_and_rules_may_come_from_elsewhere() -> None:
    class Own:
        def __init__(self, text: str, broken: bool) -> None:
            self.text, self.broken = text, broken

        def forbids(self, words: AbstractSet[str], action: str) -> bool:
            if self.broken:
                raise KeyError(action)
            return action == "cut"

    proposed = [Own("broken", True), Own("never cut", False), Own("never cut", False)]
    book = RuleBook().learned([tried("dark", "cut", False)], proposed)
    assert texts(book) == ["never cut"] and book.refuted == {"broken"}


def test_the_cover_takes_the_largest_addition_until_nothing_is_added() -> None:
    """b has 3 of weight, then a adds 2; c is covered by both."""
    covers = {"c": {1, 2}, "a": {1, 4}, "b": {2, 3, 5}, "d": {5}}
    assert greedy_cover(covers, dict.fromkeys(range(6), 1)) == ["b", "a"]
    heavy = {1: 9, 2: 1, 3: 1, 4: 1, 5: 1}
    assert greedy_cover(covers, heavy) == ["c", "b", "a"], "10 of weight are the first of equals, then 2, then 1"
    assert greedy_cover({}, {}) == []


def test_refusals_in_a_row_are_limited_and_the_next_proposal_is_carried_out() -> None:
    foresight = Foresight(rules=[parsed("cut if dark")], refusals=2)
    refused = [foresight.refuses({"dark"}, "cut") is not None for _ in range(4)]
    assert refused == [True, True, False, True] and foresight.total == 3
    assert foresight.refuses({"light"}, "cut") is None and foresight.refused == 0
