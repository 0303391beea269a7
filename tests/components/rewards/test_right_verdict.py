"""Verdicts of a judge against the label."""

import pytest

from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge


def item(label: str | None) -> Task:
    return Task(key="item", prompt="A: 1\nB: 2\n", answer=label)


def test_a_reply_is_right_only_with_the_letter_of_the_label() -> None:
    reward = RightVerdict()
    values = [judge(reward, f"<answer>{letter}</answer>", item("A")).value for letter in ("A", "B", "")]
    assert values == [1.0, 0.0, 0.0]
    assert judge(reward, "<answer>A</answer>", item("A"), stop_reason="length").status == "wrong"
    assert judge(reward, "<answer>A</answer>", item(None)).status == "error"


@pytest.mark.parametrize(("said", "value"), [("-2", 1.0), ("-1", 0.5), ("2", 0.0), ("-20", 0.0), ("x", 0.0)])
def test_strengths_have_half_for_the_right_side(said: str, value: float) -> None:
    assert judge(RightVerdict(parser="strength"), f"<answer>{said}</answer>", item("-2")).value == value


def test_without_a_tag_the_whole_reply_is_the_verdict_of_first_tag() -> None:
    reward, task = RightVerdict(parser="first_tag", wrong=-1.0), item("Answer 1 is better")
    assert judge(reward, "Answer 1 is better", task).value == 1.0
    assert judge(reward, "Answer 1 is better.", task).value == -1.0


def test_labels_that_the_parser_never_reads_are_refused() -> None:
    with pytest.raises(UserError, match="'strength' reads"):
        RightVerdict(parser="strength").check([item("A")])
    RightVerdict(parser="after_thinking").check([item("B"), item(None)])
