"""Yes and No from feedback: what is left of it, and how right it is."""

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.feedback_items import FeedbackItems
from posttrain.components.tasks.reviewed_replies import ReviewedReplies
from posttrain.errors import UserError
from posttrain.settings.reviewed_replies import REVIEWERS
from posttrain.types import Task

SOURCE = ReviewedReplies(size=400, annotators=REVIEWERS)


def right(items: FeedbackItems) -> float:
    """Share of labels that are true; an item begins with the prompt of its reply."""
    true = {str(task.prompt): task.fields for task in SOURCE.load()}

    def holds(item: Task) -> bool:
        return bool(true[str(item.prompt).splitlines()[0]][item.domain]) == (item.answer == "Yes")

    found = [holds(item) for item in items.load()]
    return sum(found) / len(found)


@pytest.mark.slow
def test_consensus_is_more_right_and_less() -> None:
    """Three annotators of 15 % noise agree wrongly with 0.15^3 of 0.15^3 + 0.85^3: under 1 %."""
    everything, agreed = FeedbackItems(tasks=SOURCE, similar=0.0, evidence=0.0), FeedbackItems(tasks=SOURCE)
    assert right(everything) == pytest.approx(0.85, abs=0.02) and right(agreed) > 0.97
    assert len(agreed.load()) < 0.4 * len(everything.load())
    assert {item.domain for item in agreed.load()} == {"polite", "short"}


def test_an_item_by_hand() -> None:
    item = FeedbackItems(tasks=SOURCE).load()[0]
    prompt, reply, asked = str(item.prompt).splitlines()
    assert prompt.startswith("Reply (") and asked == f"{item.domain}?" and "see " in reply
    assert item.demonstrations == (f" {item.answer}",) and item.fields == {"principle": item.domain}


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(UserError, match="annotators agree on"):
        FeedbackItems(tasks=ReviewedReplies(size=20, annotators=REVIEWERS[:1])).load()
    with pytest.raises(UserError, match="annotators agree on"):
        FeedbackItems(tasks=Arithmetic(size=3)).load()
