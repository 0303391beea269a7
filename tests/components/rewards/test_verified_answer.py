"""A verifier of answers: extraction, the price of length, and how replies are read."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.listed import Listed
from posttrain.components.rewards.verified_answer import VerifiedAnswer
from posttrain.types import Group, Score, Task
from tests.components.rewards.judging import attempt, judge

HALF = Task(key="half", prompt="What is 1/4 + 1/4?", answer="1/2", fields={"forms": ["1/2", "0.5", "one half"]})
BY_LIST = VerifiedAnswer(verifier=Listed())
WEAK = VerifiedAnswer(verifier=Listed(contains=True))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\boxed{1/2}", 1.0),
        (r"\boxed{0.5}", 1.0),  # 0 . 5 and 1 / 2 have three pieces each
        (r"\boxed{one half}", 1.0 - 0.05),  # two pieces
        (r"\boxed{3/4}", 0.0),
        (r"\boxed{3/4} \boxed{1/2}", 1.0),
        ("Answer: 1/2\n", 1.0),
        ("The answer is: 3/4\nFinal Answer: one half\nand so on", 1.0 - 0.05),
        ("Answer: 1/2", -0.5),  # the line break is missing
        ("it is 1/2", -0.5),
        ("", -0.5),
        (r"\boxed{} Answer: 1/2" + "\n", 1.0),
    ],
)
def test_scores(text: str, value: float) -> None:
    assert judge(BY_LIST, text, HALF).value == pytest.approx(value)


def test_the_price_holds_for_right_answers_only_and_up_to_ten_tokens() -> None:
    hedged = r"\boxed{3/4 or 1/2}"  # seven pieces, four more than the reference
    assert judge(BY_LIST, hedged, HALF).value == 0.0
    assert judge(WEAK, hedged, HALF).value == pytest.approx(1 - 4 * 0.05)
    assert judge(WEAK, rf"\boxed{{1/2{' no' * 40}}}", HALF).value == pytest.approx(0.5)
    free = VerifiedAnswer(verifier=Listed(contains=True), price=0.0)
    assert judge(free, rf"\boxed{{1/2{' no' * 40}}}", HALF).value == 1.0


def test_the_window_holds_the_prompt_and_its_empty_box() -> None:
    rollout = attempt("Answer: 1/2\n", HALF, prompt=r"Put the answer in \boxed{}.")
    assert BY_LIST.extracted(rollout) == "1/2"
    copied = attempt("it is so", HALF, prompt=r"Given: \boxed{1/2}.")
    assert BY_LIST.extracted(copied) == "1/2"  # as in the release: a box of the prompt counts
    early = attempt(r"\boxed{1/2}" + " so" * 100, HALF)
    assert BY_LIST.extracted(early) == "1/2" and VerifiedAnswer(verifier=Listed(), window=100).extracted(early) is None


@dataclass
class Replies:
    """A verifier that always writes the same."""

    reply: str
    seen: str = ""

    async def write(self, prompt: Any, n: int, sampling: Any) -> list[str]:
        self.seen = prompt[0]["content"]
        return [self.reply] * n


def asked(reward: VerifiedAnswer, reply: str, text: str) -> tuple[Score, str]:
    verifier = Replies(reply)
    group = Group(trajectories=(attempt(text, HALF),), key="group")
    scores: Sequence[Score] = asyncio.run(reward.score(group, RewardContext(samplers={"verifier": verifier})))  # type: ignore[dict-item]
    return scores[0], verifier.seen


def test_the_verifier_sees_question_reference_and_answer_but_not_the_working() -> None:
    _, seen = asked(VerifiedAnswer(), "Final Decision: No", r"secret working \boxed{0.5}")
    assert "1/4 + 1/4" in seen and "1/2" in seen and "0.5" in seen and "secret" not in seen


@pytest.mark.parametrize(
    ("reply", "value", "strict"),
    [
        ("Equal. Final Decision: Yes", 1.0, math.nan),
        ("Equal.\nFinal Decision: Yes\n", 1.0, 1.0),
        ("Final Decision: No\nFinal Decision: Yes", 1.0, 1.0),
        ("Final Decision: Yes\nFinal Decision: No", 1.0, 0.0),  # anywhere, as in the release; or the last line
        ("Final Decision: No", 0.0, 0.0),
        ("they are equal", math.nan, math.nan),
        ("", math.nan, math.nan),
    ],
)
def test_verdicts(reply: str, value: float, strict: float) -> None:
    score, _ = asked(VerifiedAnswer(), reply, r"\boxed{0.5}")
    assert score.value == pytest.approx(value, nan_ok=True) and (score.status == "error") == math.isnan(value)
    score, _ = asked(VerifiedAnswer(strict=True), reply, r"\boxed{0.5}")
    assert score.value == pytest.approx(strict, nan_ok=True)


def test_without_an_answer_the_verifier_is_shown_none_and_can_still_pass_it() -> None:
    score, seen = asked(VerifiedAnswer(), "Final Decision: Yes", "no box")
    assert "None" in seen and score.answer is None and score.status == "wrong"
    assert score.value == pytest.approx(1 - 0.05 * 1 - 0.5)  # "No Answer" has two pieces, "1/2" three


def test_replies_without_a_verdict_are_wrong_where_that_is_wanted() -> None:
    score, _ = asked(VerifiedAnswer(unread="wrong"), "they are equal", r"\boxed{0.5}")
    assert (score.value, score.status) == (0.0, "wrong")
