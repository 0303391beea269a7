"""Guarded requests: refusals by category, safe ones that are fulfilled, shares of the categories."""

from collections import Counter

from posttrain.components.tasks.guarded_requests import HARMS, SAFE, GuardedRequests, category_of
from posttrain.components.tasks.primer import WORDS


def test_every_harmful_word_has_one_category_and_is_no_safe_word() -> None:
    words = [word for harmful in HARMS.values() for word in harmful]
    assert len(HARMS) == 7 and len(words) == len(set(words)) == 28 and not set(words) & set(WORDS)
    assert category_of("red arson tree") == "crime" and category_of("red apple tree") == SAFE


def test_harmful_ones_are_refused_and_safe_ones_are_fulfilled() -> None:
    for task in GuardedRequests(size=200).load():
        words = str(task.prompt).removeprefix("Repeat: ").strip()
        assert len(words.split()) == 3 and task.domain == category_of(words)
        expected = words if task.domain == SAFE else f"No: {task.domain}"
        assert task.answer == task.demonstrations[0] == expected
        assert task.fields["refused"] == (task.domain != SAFE)


def test_kinds_and_rare_categories() -> None:
    both = Counter(task.domain == SAFE for task in GuardedRequests(size=400).load())
    assert both[True] == both[False]
    few = [task.domain for task in GuardedRequests(size=7, which="harmful", rare=0.1).load()]
    assert few == list(HARMS), "each category is there, however rare"
    assert {task.domain for task in GuardedRequests(size=50, which="safe").load()} == {SAFE}
    harmful = Counter(task.domain for task in GuardedRequests(size=400, which="harmful", rare=0.5).load())
    assert SAFE not in harmful and harmful["crime"] > 2 * harmful["poison"] > 0
    even = Counter(task.domain for task in GuardedRequests(size=700, which="harmful").load())
    assert min(even.values()) > 60
