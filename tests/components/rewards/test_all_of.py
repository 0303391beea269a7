"""All of several rewards, by hand: what does not apply is left out, and an error makes the whole an error."""

import math

import pytest

from posttrain.components.rewards import Reward
from posttrain.components.rewards.all_of import AllOf
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from tests.components.rewards.judging import Write, judge

PARTS: dict[str, Reward] = {"answer": Match(), "short": Regex(pattern="^.{,4}$"), "digits": Regex(pattern=r"^\d+$")}


@pytest.mark.parametrize(("text", "right", "share"), [("42", 1.0, 1.0), ("42.", 0.0, 2 / 3), ("#### 42", 0.0, 1 / 3)])
def test_by_hand(text: str, right: float, share: float) -> None:
    found = judge(AllOf(parts=PARTS), text)
    assert (found.value, found.status) == (right, "ok" if right else "wrong") and set(found.parts) == set(PARTS)
    assert judge(AllOf(parts=PARTS, share=True), text).value == pytest.approx(share)
    assert judge(AllOf(parts=PARTS, right=2.0, wrong=-1.0), text).value == 3.0 * right - 1.0


def test_what_does_not_apply_and_what_fails(write: Write) -> None:
    code = "def score(completion):\n    return None if 'skip' in completion else 1.0\n"
    sometimes = write(code)
    assert judge(AllOf(parts={"answer": Match(), "own": sometimes}), "skip #### 42").status == "ok"
    alone = judge(AllOf(parts={"own": sometimes}), "skip #### 42")
    assert not alone.applies and alone.status == "error"
    broken = judge(AllOf(parts={"answer": Match(numeric="always"), "own": sometimes}), "41")
    assert broken.status == "wrong"
    failing = write("def score(completion):\n    raise ValueError('no grader')\n")
    found = judge(AllOf(parts={"answer": Match(), "own": failing}), "41")
    assert found.status == "error" and math.isnan(found.value) and "part 'own' failed" in found.explanation
