"""Comparisons by a judge: margins, both orders, replies without a verdict."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.duels import Duels
from posttrain.components.rewards.written_sum import WrittenSum
from posttrain.engines import Sampling
from posttrain.types import Group, Message, Score
from tests.components.rewards.judging import attempt, judge

PLAIN: dict[str, Any] = {"template": "{raw_first}|{raw_second}\n", "chat": False}


class Judge:
    """Answers by a function of the two texts, and keeps what it was asked."""

    def __init__(self, verdict: Callable[[str, str], str]) -> None:
        self.verdict, self.asked = verdict, list[str]()

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        assert isinstance(prompt, str)
        self.asked.append(prompt.removesuffix("\n"))
        first, second = self.asked[-1].split("|")
        return [self.verdict(first, second)]


def scores(reward: Duels, judge: Any, *texts: str, drawn_in: int | None = None) -> list[Score]:
    rollouts = tuple(replace(attempt(text), sample=i) for i, text in enumerate(texts))
    context = RewardContext(samplers={"judge": judge}, step=drawn_in or 0, as_given=drawn_in is None)
    return list(asyncio.run(reward.score(Group(trajectories=rollouts, key="k"), context)))


def longer(first: str, second: str) -> str:
    return f"<answer>{'A' if len(first) > len(second) else 'B'}</answer>"


def test_margins_of_three_rollouts() -> None:
    judge = Judge(longer)
    found = scores(Duels(**PLAIN), judge, "xx", "xxx", "x")
    assert [round(score.value, 9) for score in found] == [0.0, round(2 / 3, 9), round(-2 / 3, 9)]
    assert judge.asked == ["xx|xxx", "xx|x", "xxx|x"]
    parts = {name: part.value for name, part in found[0].parts.items()}
    assert parts == {"cut": 0.0, "against_1": -1.0, "against_2": 1.0}
    assert [score.status for score in found] == ["wrong", "ok", "wrong"]


def test_both_orders_cancel_a_preference_for_a_place() -> None:
    judge = Judge(lambda first, second: "<answer>A</answer>")
    assert [score.value for score in scores(Duels(**PLAIN), judge, "a", "b")] == [0.5, -0.5]
    both = scores(Duels(**PLAIN, both_orders=True), judge, "a", "b")
    assert [score.value for score in both] == [0.0, 0.0] and judge.asked[-2:] == ["a|b", "b|a"]


def test_strengths_and_lengths() -> None:
    judge = Judge(lambda first, second: "<answer>-3</answer>")
    assert [s.value for s in scores(Duels(**PLAIN, parser="strength"), judge, "a", "b")] == [1.5, -1.5]
    found = scores(Duels(**PLAIN, parser="strength", by_length=True), judge, "a", "b")
    assert found[0].value == pytest.approx(3 / 19 / 2)


def test_a_reply_without_a_verdict_is_an_error_of_both_or_a_tie() -> None:
    judge = Judge(lambda first, second: "hm" if "x" in first + second else longer(first, second))
    found = scores(Duels(**PLAIN), judge, "x", "b", "cc")
    assert [score.status for score in found] == ["error"] * 3
    found = scores(Duels(**PLAIN, unreadable="tie"), judge, "x", "b", "cc")
    assert [round(3 * score.value) for score in found] == [0, -1, 1] and "2 replies" in found[0].explanation


def test_one_rollout_has_no_margin_and_templates_show_both() -> None:
    (alone,) = scores(Duels(**PLAIN), Judge(longer), "x")
    assert alone.value == 0.0 and alone.parts.keys() == {"cut"}
    with pytest.raises(ValidationError, match="must show both"):
        Duels(template="{first}")
    with pytest.raises(ValidationError, match=r"text must follow '\{raw_second\}', since it marks the candidate's end"):
        Duels(template="{raw_first}|{raw_second}")


def test_the_order_of_each_two_is_drawn_by_item_and_margins_are_those_of_the_rollouts() -> None:
    judge = Judge(longer)
    found = [scores(Duels(**PLAIN), judge, "xx", "xxx", "x", drawn_in=step) for step in range(40)]
    assert all([round(3 * score.value) for score in own] == [0, 2, -2] for own in found)
    first = [asked.startswith("xx|") for asked in judge.asked[::3]]
    assert 10 < sum(first) < 30, "an order of its own in each step"
    again = Judge(longer)
    scores(Duels(**PLAIN), again, "xx", "xxx", "x", drawn_in=0)
    assert again.asked == judge.asked[:3]
    both = Judge(longer)
    scores(Duels(**PLAIN, both_orders=True), both, "xx", "xxx", "x", drawn_in=0)
    assert both.asked[::2] == judge.asked[:3]


def test_a_long_rollout_is_cut_at_its_end_and_cannot_leave_its_place() -> None:
    judge = Judge(longer)
    one, other = scores(Duels(**PLAIN, longest=4), judge, "abcdefgh", "ab|c\nd")
    assert judge.asked == ["abcd|ab c"]
    assert [score.parts["cut"].value for score in (one, other)] == [1.0, 1.0]


@pytest.mark.parametrize(("text", "value"), [("9+9", 1.0), (" 2+7 ", 0.5), ("12+3", 0.0), ("3+3+3", 0.0), ("", 0.0)])
def test_written_sums(text: str, value: float) -> None:
    assert judge(WrittenSum(), text).value == value
