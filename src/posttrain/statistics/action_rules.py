"""Rules that forbid actions, learned from transitions: what never worked, in as few rules as explain the failures.

A state is a set of words. A rule forbids one action in the states that have some words and lack others. Candidates are
all conjunctions of up to two such conditions; a candidate that forbids an action which worked is thrown out for ever.
Of the others a greedy cover is kept: again and again the rule that forbids most failures which no kept rule forbids,
the first of equals, until no rule adds one. Only failures that were not foreseen are covered.

Source: WALL-E 2.0, arXiv:2504.15785, and its release (elated-sawyer/WALL-E at 3dad1ed, rulesverification.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An action in a state, and whether it worked."""

    words: frozenset[str]
    """Of the state."""
    action: str
    worked: bool
    predicted: bool = True
    """Whether the model of the environment expected it to work."""


class Forbids(Protocol):
    """Anything that may forbid an action, with a text by which duplicates are known."""

    @property
    def text(self) -> str:
        """The rule in words."""
        ...

    def forbids(self, words: AbstractSet[str], action: str) -> bool:
        """Whether the action fails in the state; an error throws the rule out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Forbids an action in states with all of some words and none of others."""

    action: str
    present: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """``cut if wood:no, not saw``."""
        conditions = [*sorted(self.present), *(f"not {word}" for word in sorted(self.absent))]
        return f"{self.action} if {', '.join(conditions)}"

    def forbids(self, words: AbstractSet[str], action: str) -> bool:
        """Whether the action fails in the state."""
        return action.strip() == self.action and self.present <= words and not self.absent & words


def parsed(text: str) -> Rule:
    """The rule of a text. Raises `ValueError` for another text than ``ACTION if WORD, not WORD``."""
    action, found, rest = text.partition(" if ")
    conditions = [part.strip() for part in rest.split(",")]
    if not found or not action.strip() or not all(conditions):
        raise ValueError(f"a rule is written 'ACTION if WORD, not WORD', got {text!r}")
    absent = frozenset(part.removeprefix("not ").strip() for part in conditions if part.startswith("not "))
    present = frozenset(part for part in conditions if not part.startswith("not "))
    return Rule(action=action.strip(), present=present, absent=absent)


def words_of(state: str) -> frozenset[str]:
    """The words of a state, without the punctuation around them."""
    return frozenset(word for part in state.split() if (word := re.sub(r"^[,.;!?()]+|[,.;:!?()]+$", "", part)))


def candidates(transitions: Sequence[Transition], conditions: int = 2) -> Iterator[Rule]:
    """All conjunctions of up to `conditions` words, there or not there, for each action that failed; short ones first,
    and of these the ones with words that are there.
    """
    words = sorted(frozenset[str]().union(*(t.words for t in transitions)))
    actions = list(dict.fromkeys(t.action for t in transitions if not t.worked))
    literals = [(word, there) for there in (True, False) for word in words]
    for size in range(1, conditions + 1):
        for action in actions:
            for chosen in combinations(literals, size):
                present = frozenset(word for word, there in chosen if there)
                absent = frozenset(word for word, there in chosen if not there)
                if not present & absent:
                    yield Rule(action=action, present=present, absent=absent)


@dataclass(frozen=True, kw_only=True)
class RuleBook:
    """What is known of an environment: kept rules, texts of those that were thrown out, and all transitions."""

    rules: tuple[Forbids, ...] = ()
    refuted: frozenset[str] = frozenset()
    transitions: tuple[Transition, ...] = ()

    def learned(
        self, more: Iterable[Transition], proposed: Iterable[Forbids] | None = None, *, conditions: int = 2
    ) -> "RuleBook":
        """The book after more transitions. Kept rules are tried first, then those proposed, by default all
        conjunctions of up to `conditions` words.
        """
        seen = (*self.transitions, *more)
        pool = {rule.text: rule for rule in self.rules}
        for rule in candidates(seen, conditions) if proposed is None else proposed:
            pool.setdefault(rule.text, rule)
        counts = Counter(seen)
        covers, refuted = dict[str, frozenset[Transition]](), set(self.refuted)
        for text, rule in pool.items():
            if text not in refuted:
                cover = _cover(rule, counts)
                if cover is None:
                    refuted.add(text)
                elif cover:
                    covers[text] = cover
        kept = tuple(pool[text] for text in greedy_cover(covers, counts))
        return RuleBook(rules=kept, refuted=frozenset(refuted), transitions=seen)


def _cover(rule: Forbids, transitions: Iterable[Transition]) -> frozenset[Transition] | None:
    """The unforeseen failures that a rule forbids; None where it raises, or forbids what worked."""
    found = set()
    for transition in transitions:
        try:
            forbids = rule.forbids(transition.words, transition.action)
        except Exception:
            return None
        if forbids and transition.worked:
            return None
        if forbids and transition.predicted:
            found.add(transition)
    return frozenset(found)


def greedy_cover(covers: Mapping[str, AbstractSet[T]], weights: Mapping[T, int]) -> list[str]:
    """Names of sets: again and again the one with the largest weight of what is in none so far, the first of equals,
    until none adds anything.
    """
    chosen, covered = list[str](), set[T]()

    def added(name: str) -> int:
        return sum(weights[item] for item in covers[name] - covered)

    while covers:
        best = max(covers, key=added)
        if not added(best):
            break
        chosen.append(best)
        covered |= covers[best]
    return chosen


@dataclass(kw_only=True)
class Foresight:
    """Refuses what rules forbid, up to a number of times in a row; the proposal after that is carried out."""

    rules: Sequence[Forbids]
    refusals: int
    refused: int = 0
    """Refusals in a row."""
    total: int = field(default=0)

    def refuses(self, words: AbstractSet[str], action: str) -> Forbids | None:
        """The first rule that forbids an action; None where it is carried out."""
        rule = next((rule for rule in self.rules if rule.forbids(words, action)), None)
        if rule is None or self.refused >= self.refusals:
            self.refused = 0
            return None
        self.refused += 1
        self.total += 1
        return rule
