"""The maximum of rewards: later parts are asked only where they can matter, and failures stay failures."""

import math
from collections.abc import Sequence

import pytest

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.highest import Highest
from posttrain.components.rewards.match import Match
from posttrain.types import Group, Score, Task
from tests.components.rewards.judging import attempt, judge, score_all

CALLS: list[list[str]] = []


@frozen
class Table(Reward):
    """Scores by what a text is; any other text fails. Notes what it is asked for."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        CALLS.append([t.completion for t in group])
        known = {"half": 0.5, "yes": 1.0, "no": 0.0}
        return [
            Score(value=known[t.completion], status="ok" if known[t.completion] >= 1 else "wrong")
            if t.completion in known
            else failure("no reply")
            for t in group
        ]


RULE_THEN_JUDGE = Highest(parts={"rule": Match(extract=("whole",)), "judge": Table()})


def test_the_judge_is_asked_only_where_the_rule_is_not_satisfied() -> None:
    CALLS.clear()
    scores = score_all(RULE_THEN_JUDGE, *(attempt(text) for text in ("42", "yes", "no", "half")))
    assert [score.value for score in scores] == [1.0, 1.0, 0.0, 0.5]
    assert [score.status for score in scores] == ["ok", "ok", "wrong", "wrong"]
    assert CALLS == [["yes", "no", "half"]] and set(scores[0].parts) == {"rule"}
    assert set(scores[1].parts) == {"rule", "judge"} and scores[1].explanation.startswith("judge: ")
    CALLS.clear()
    assert judge(RULE_THEN_JUDGE, "42").value == 1.0 and not CALLS


def test_a_failed_judge_is_no_zero_unless_another_part_suffices() -> None:
    failed = judge(RULE_THEN_JUDGE, "silence")
    assert (
        failed.status == "error" and math.isnan(failed.value) and "part 'judge' failed: no reply" in failed.explanation
    )
    first = Highest(parts={"judge": Table(), "rule": Match(extract=("whole",))})
    assert judge(first, "42").status == "ok", "the rule accepts it, whatever the judge would say"
    assert judge(first, "43").status == "error"


@pytest.mark.parametrize("text", ["", "a", ".", "  ", "the", "s"])
def test_a_part_of_the_answer_is_not_the_answer(text: str) -> None:
    """The release accepts any text that is in the answer, or has it, after normalization."""
    task = Task(key="t", prompt="Who?", answer="The alps.")
    assert judge(Highest(parts={"rule": Match()}), text, task).value == 0.0
    assert judge(Highest(parts={"rule": Match()}), "the Alps", task).value == 1.0
