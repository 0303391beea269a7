"""The best of several answers, and the tasks that have no good one."""

import asyncio
from typing import Any

from posttrain.components.rewards.match import Match
from posttrain.components.selections.best import Best
from posttrain.types import Completion, Task
from tests.components.selections.test_sampled import TwoModes

FOUR = Task(key="k", prompt="2+2", answer="4", demonstrations=("old",))
SIX = Task(key="s", prompt="3+3", answer="6")


class Cut(TwoModes):
    """Ends at the limit of tokens."""

    async def sample(self, *given: Any) -> list[Completion]:
        made = await super().sample(*given)
        return [
            Completion(token_ids=c.token_ids, logp=c.logp, stop_reason="length", version=0, text=c.text) for c in made
        ]


def measured(best: Best, *tasks: Task, sampler: TwoModes | None = None) -> Any:
    return asyncio.run(best.measure(tasks, {"policy": sampler or TwoModes()}))  # type: ignore[dict-item]


def test_the_best_answer_is_kept_if_it_is_good_enough() -> None:
    best = Best(reward=Match(), n=4, at_least=1.0)
    chosen = best.choose([FOUR, SIX], measured(best, FOUR, SIX))
    [task] = chosen.tasks
    assert task.demonstrations == ("<think>1+3</think>\n#### 4",), "of equal scores the first"
    assert task.fields["origin"] == [{"writer": "policy", "value": 1.0}]
    assert "1 of 2 tasks have an answer by the role 'policy' with a score of 1 or more among 4" in chosen.summary
    assert best.roles == {"policy"} and best.writes == {"demonstrations"}


def test_a_lower_threshold_keeps_wrong_answers_and_the_first_tasks_alone_are_sampled() -> None:
    low = Best(reward=Match(), n=2, at_least=0.0, first=1)
    rows = measured(low, SIX, FOUR)
    assert len(rows) == 1 and [t.key for t in low.choose([SIX, FOUR], rows).tasks] == ["s"]


def test_answers_that_were_cut_are_none() -> None:
    best = Best(reward=Match(), n=2, at_least=0.0)
    rows = measured(best, FOUR, sampler=Cut())
    assert rows == [None] and "1 have none that ended" in best.choose([FOUR], rows).summary
