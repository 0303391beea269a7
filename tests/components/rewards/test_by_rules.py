import asyncio
import math
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.by_rules import ByRules
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

TASK = Task(key="k", prompt="Party of kim (abc):", fields={"rules": ["um", "no name"]})


def values(reward: ByRules, *texts: str, task: Task = TASK) -> list[float]:
    return [score.value for score in score_all(reward, *(attempt(text, task) for text in texts))]


def test_the_rules_of_the_task_come_first() -> None:
    texts = ("joy kim", "um joy kim", "joy", "meh joy kim")
    assert values(ByRules(rules=("meh",)), *texts) == [1, 0, 0, 1]
    assert values(ByRules(rules=("meh",), own=False), *texts) == [1, 1, 1, 0]
    assert values(ByRules(rules=("meh",)), *texts, task=Task(key="k", prompt="Party of kim")) == [1, 1, 1, 0]


def test_a_text_that_was_cut_is_bad() -> None:
    cut = attempt("joy kim", TASK, stop_reason="length")
    assert [score_all(ByRules(whole=whole), cut)[0].value for whole in (True, False)] == [0.0, 1.0]


@pytest.mark.parametrize(("reply", "value"), [('{"verdict": "Good"}', 1.0), ('{"verdict": "Bad"}', 0.0), ("no", None)])
def test_a_model_judges_and_an_unreadable_reply_is_an_error_or_zero(reply: str, value: float | None) -> None:
    class Judge:
        async def write(self, prompt: Any, n: int, sampling: Any) -> list[str]:
            assert "um" in prompt[0]["content"] and "<<<BEGIN" in prompt[0]["content"]
            return [reply]

    context = RewardContext(samplers={"judge": Judge()})  # type: ignore[dict-item]
    (score,) = score_all(ByRules(role="judge"), attempt("joy", TASK), context=context)
    assert score.value == value if value is not None else score.status == "error" and math.isnan(score.value)
    (zero,) = score_all(ByRules(role="judge", unreadable="zero"), attempt("joy", TASK), context=context)
    assert zero.value == (value or 0.0) and zero.status in ("ok", "wrong")
    assert asyncio.iscoroutinefunction(ByRules().score) and ByRules(role="judge").roles == {"judge"}
